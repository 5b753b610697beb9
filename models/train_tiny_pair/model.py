"""The target (Qwen3) and the DFlash drafter.

Shape letters: B batch, S tokens, T context tokens, N anchors (blocks) per sequence, K block size, L layers,
H hidden, C captured target layers, V vocabulary, D head size.

Conventions that must match the serving engine (they fail silently as "accept length 1"):
  * target_layer_ids = [i, ...] means the residual stream AFTER decoder layer i, i.e. HF
    hidden_states[i + 1] (index 0 is the embedding), taken before the final norm.
  * A decode step has n tokens in the KV cache and one bonus token x_n that is sampled but not yet
    run through the target. Context K/V of the drafter come from target hiddens at 0..n-1 (strictly
    before the anchor). The block is [x_n, MASK, ..., MASK] at positions n..n+K-1, attention inside
    the block is bidirectional, and slot k (k = 1..K-1) predicts token n+k itself, not the next one.
  * Context features go fc -> hidden_norm -> k_proj/v_proj of every layer: no input_layernorm on them.
  * MASK is a row of the TARGET embedding. The target never sees that token, so the row is free; it is
    trained together with the drafter and written into the target checkpoint.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

CFG = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
DRAFT_LAYERS, BLOCK, CAPTURE = 2, 8, [1, 2, 3, 4]
EOT, IM_END, MASK = 0, 2, 3


class RMSNorm(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.weight = nn.Parameter(torch.ones(d))

    def forward(s, x):
        return F.rms_norm(x, x.shape[-1:], s.weight.to(x.dtype), CFG["rms_norm_eps"]).to(x.dtype)


def rope_table(n, dev):
    """(cos, sin), each fp32 [n, D/2] (NeoX layout: the two halves of a head are paired)."""
    d = CFG["head_dim"]
    f = torch.arange(n, device=dev)[:, None] * CFG["rope_theta"] ** (-torch.arange(0, d, 2, device=dev) / d)
    return f.cos(), f.sin()


def rope(x, cs):
    """x [B, h, S, D]; cs = (cos, sin), each [S, D/2] or [B, 1, S, D/2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cs[0] - b * cs[1], b * cs[0] + a * cs[1]], -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(s):
        super().__init__()
        h, s.nq, s.nk, s.d = (
            CFG["hidden_size"],
            CFG["num_attention_heads"],
            CFG["num_key_value_heads"],
            CFG["head_dim"],
        )

        def lin(i, o):
            return nn.Linear(i, o, bias=False)

        s.q_proj, s.k_proj, s.v_proj, s.o_proj = (
            lin(h, s.nq * s.d),
            lin(h, s.nk * s.d),
            lin(h, s.nk * s.d),
            lin(s.nq * s.d, h),
        )
        s.q_norm, s.k_norm = RMSNorm(s.d), RMSNorm(s.d)

    def kv(s, x, cs):
        """x [B, S, H] -> k (normed, rotated), v: [B, nk, S, D]."""

        def sp(y):
            return y.view(*y.shape[:2], s.nk, s.d).transpose(1, 2)

        return rope(s.k_norm(sp(s.k_proj(x))), cs), sp(s.v_proj(x))

    def forward(s, x, cs, mask=None, ctx=None, ctx_cs=None, cache=None):
        """x [B, S, H]. mask None = causal, else bool [B or 1, 1, S, kv], True = visible.
        ctx [B, T, H]: extra keys/values in front (drafter).
        cache (Kbuf, Vbuf, t): keep k/v, attend to the first t + S."""
        B, S, _ = x.shape
        q = rope(s.q_norm(s.q_proj(x).view(B, S, s.nq, s.d).transpose(1, 2)), cs)
        k, v = s.kv(x, cs)
        if ctx is not None:
            kc, vc = s.kv(ctx, ctx_cs)
            k, v = torch.cat([kc, k], 2), torch.cat([vc, v], 2)
        if cache is not None:
            kb, vb, t = cache
            kb[:, :, t : t + S], vb[:, :, t : t + S] = k, v
            k, v = kb[:, :, : t + S], vb[:, :, : t + S]
        if mask is not None:  # repeat the kv heads: the masked fast path has no grouped-query support
            k, v = (y.repeat_interleave(s.nq // s.nk, 1) for y in (k, v))
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=S > 1, enable_gqa=True)
        return s.o_proj(o.transpose(1, 2).reshape(B, S, -1))


class MLP(nn.Module):
    def __init__(s):
        super().__init__()
        h, i = CFG["hidden_size"], CFG["intermediate_size"]
        s.gate_proj, s.up_proj, s.down_proj = (
            nn.Linear(h, i, bias=False),
            nn.Linear(h, i, bias=False),
            nn.Linear(i, h, bias=False),
        )

    def forward(s, x):
        return s.down_proj(F.silu(s.gate_proj(x)) * s.up_proj(x))


class Layer(nn.Module):
    def __init__(s):
        super().__init__()
        h = CFG["hidden_size"]
        s.input_layernorm, s.self_attn, s.post_attention_layernorm, s.mlp = (
            RMSNorm(h),
            Attention(),
            RMSNorm(h),
            MLP(),
        )

    def forward(s, x, cs, mask=None, ctx=None, ctx_cs=None, cache=None):
        x = x + s.self_attn(s.input_layernorm(x), cs, mask, ctx, ctx_cs, cache)
        return x + s.mlp(s.post_attention_layernorm(x))


class Target(nn.Module):
    """Qwen3, untied head. Parameter names are HF's without the leading 'model.' (lm_head excepted)."""

    def __init__(s):
        super().__init__()
        v, h, n = CFG["vocab_size"], CFG["hidden_size"], CFG["num_hidden_layers"]
        s.embed_tokens, s.layers, s.norm, s.lm_head = (
            nn.Embedding(v, h),
            nn.ModuleList(Layer() for _ in range(n)),
            RMSNorm(h),
            nn.Linear(h, v, bias=False),
        )
        init_weights(s, n)
        nn.init.normal_(s.embed_tokens.weight, std=0.1)
        nn.init.normal_(s.lm_head.weight, std=0.02)

    def forward(s, ids, cs, dtype=None, mask=None, caches=None, t=0):
        """ids [B, S] -> (final hidden [B, S, H], captured [B, S, C*H])."""
        x = s.embed_tokens(ids)
        x = x if dtype is None else x.to(dtype)
        cap = []
        for i, layer in enumerate(s.layers):
            x = layer(x, cs, mask, cache=None if caches is None else (*caches[i], t))
            if i in CAPTURE:
                cap.append(x)
        return s.norm(x), torch.cat(cap, -1)

    def new_cache(s, B, T, like):
        a = s.layers[0].self_attn
        return [tuple(like.new_zeros(B, a.nk, T, a.d) for _ in "kv") for _ in s.layers]


class Drafter(nn.Module):
    """fc: [C*H] -> H. Forward fills all K slots of N independent blocks at once."""

    def __init__(s):
        super().__init__()
        h = CFG["hidden_size"]
        s.fc, s.hidden_norm = nn.Linear(len(CAPTURE) * h, h, bias=False), RMSNorm(h)
        s.layers, s.norm = nn.ModuleList(Layer() for _ in range(DRAFT_LAYERS)), RMSNorm(h)
        init_weights(s, DRAFT_LAYERS)

    def forward(s, captured, x, anchors, tab):
        """captured [B, T, C*H] target features of tokens 0..T-1; x [B, N*K, H] block embeddings;
        anchors [B, N] absolute position of slot 0. Returns hidden [B, N, K, H]."""
        B, T, _ = captured.shape
        N = anchors.shape[1]
        dev = x.device
        ctx = s.hidden_norm(s.fc(captured))
        pos = (anchors[..., None] + torch.arange(BLOCK, device=dev)).flatten(1)  # [B, N*K]
        blk = torch.arange(N, device=dev).repeat_interleave(BLOCK)
        mask = torch.cat(
            [
                torch.arange(T, device=dev)
                < anchors.repeat_interleave(BLOCK, 1)[..., None],  # strictly before the anchor
                (blk[:, None] == blk).expand(B, -1, -1),
            ],
            -1,
        )[:, None]  # [B, 1, N*K, T + N*K]
        cs = tuple(t[pos][:, None] for t in tab)
        ctx_cs = tuple(t[:T] for t in tab)
        for layer in s.layers:
            x = layer(x, cs, mask, ctx, ctx_cs)
        return s.norm(x).view(B, N, BLOCK, -1)


def init_weights(m, n):
    for k, p in m.named_parameters():
        if p.dim() == 2:
            nn.init.normal_(
                p,
                std=p.shape[1] ** -0.5
                * (0.5 / math.sqrt(n) if k.endswith(("o_proj.weight", "down_proj.weight")) else 1.0),
            )


def block_embeds(embed, mask_emb, ids, anchors):
    """[x_a, MASK * (K-1)] for every anchor: [B, N*K, H]. ids [B, T], anchors [B, N]."""
    x0 = embed(ids.gather(1, anchors)).unsqueeze(2)
    return torch.cat([x0, mask_emb.to(x0.dtype).expand(*anchors.shape, BLOCK - 1, -1)], 2).flatten(1, 2)
