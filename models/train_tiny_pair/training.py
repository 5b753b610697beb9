"""Training on one GPU: the target, its own continuations, then the drafter on the target's features."""

import random
import time

import torch
import torch.nn.functional as F
from model import BLOCK, CFG, MASK, Drafter, Layer, Target, block_embeds, rope_table
from torch import nn


def lm_loss(h, w, y):
    return F.cross_entropy((h @ w.to(h.dtype).T).float().flatten(0, 1), y.flatten())


def schedule(p, warm=0.02, hold=0.45):
    """Learning-rate factor at progress p in [0, 1]: warm-up, plateau, linear decay to 2 %."""
    return p / warm if p < warm else 1.0 if p < hold else 0.02 + 0.98 * (1 - p) / (1 - hold)


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def windows(tok, B, S, g):
    """Random windows of the token stream: int64 [B, S]."""
    st = torch.randint(0, tok.numel() - S, (B, 1), generator=g, device=tok.device)
    return tok[st + torch.arange(S, device=tok.device)].long()


def make_opt(params, lr):
    dec = [p for p in params if p.dim() == 2 and p.shape[0] != CFG["vocab_size"]]
    ids = {id(p) for p in dec}
    return torch.optim.AdamW(
        [
            {"params": dec, "weight_decay": 0.05},
            {"params": [p for p in params if id(p) not in ids], "weight_decay": 0.0},
        ],
        lr=lr,
        betas=(0.9, 0.97),
        eps=1e-10,
        fused=True,
    )


def train_target(tok, a, dev):
    torch.manual_seed(a.seed)
    g = torch.Generator(dev).manual_seed(a.seed)
    m = Target().to(dev)
    tab = rope_table(CFG["max_position_embeddings"], dev)
    eager = Layer.forward
    comp = (lambda f: f) if a.no_compile else (lambda f: torch.compile(f, dynamic=False))
    Layer.forward, loss_fn = comp(eager), comp(lm_loss)  # one compiled layer serves all layers

    def loss_of(S):
        x = windows(tok, max(1, a.batch_tokens // S), S + 1, g)
        with torch.autocast(dev.type, torch.bfloat16):
            h, _ = m(x[:, :-1], tuple(t[:S] for t in tab), dtype=torch.bfloat16)
            return loss_fn(h, m.lm_head.weight, x[:, 1:].contiguous())

    for S in (a.seq_len, a.long_len):
        loss_of(S).backward()  # compile both shapes before the clock starts
    opt = make_opt(list(m.parameters()), a.lr)
    opt.zero_grad(set_to_none=True)
    sync()
    print("compiled", flush=True)
    t0 = tl = time.time()
    step = seen = sl = 0
    log = []
    acc = 0.0
    while True:
        p = (time.time() - t0) / a.target_seconds
        if p >= 1:
            break
        S = a.long_len if p > 1 - a.long_frac else a.seq_len
        for gr in opt.param_groups:
            gr["lr"] = a.lr * schedule(p)
        loss = loss_of(S)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=True)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        seen += a.batch_tokens // S * S
        acc = acc + loss.detach()
        if step in (1, 5, 20) or step % 200 == 0:
            sync()
            n = time.time()
            log.append(
                {
                    "step": step,
                    "tokens": seen,
                    "seconds": round(n - t0, 1),
                    "loss": round(float(acc) / (step - sl), 4),
                    "tok_per_s": round((seen - (log[-1]["tokens"] if log else 0)) / (n - tl)),
                    "S": S,
                }
            )
            print("target", log[-1], flush=True)
            acc = 0.0
            tl = n
            sl = step
        elif step % 10 == 0:
            sync()  # keep the clock that drives the schedule honest
    Layer.forward = eager
    return m, {"steps": step, "tokens": seen, "seconds": time.time() - t0, "log": log}


@torch.no_grad()
def generate(m, prompt, T, temps, tab, gen=None):
    """Continue prompt [B, P] up to T tokens. temps [B]: 0 = greedy. Returns [B, T] int64."""
    B, P = prompt.shape
    out = prompt.new_zeros(B, T)
    out[:, :P] = prompt
    caches = m.new_cache(B, T, m.lm_head.weight)
    x, t = prompt, 0
    inv = 1.0 / temps.clamp_min(1e-3)[:, None]
    hot = (temps > 0)[:, None]
    for i in range(P, T):
        h, _ = m(x, tuple(c[t : t + x.shape[1]] for c in tab), caches=caches, t=t)
        t += x.shape[1]
        lg = m.lm_head(h[:, -1]).float()
        u = torch.rand(lg.shape, device=lg.device, generator=gen).clamp_min(1e-20)
        lg = torch.where(hot, lg * inv - (-u.log()).clamp_min(1e-20).log(), lg)  # Gumbel-max sampling
        x = lg.argmax(-1, keepdim=True)
        out[:, i : i + 1] = x
    return out


@torch.no_grad()
def make_rounds(m, tok, synth, tab, a, g):
    """Target continuations of corpus windows: [(ids int16 [B, T], features bf16 [B, T, C*H], P)].
    Mostly T = 384, some long contexts. A quarter of the prompts come from the synthetic documents."""
    t0 = time.time()
    rounds = []
    seen = 0
    G = a.gen_len
    plan = [(a.gen_batch, G, P) for P in (G // 12, G // 6, G // 4, G // 3, G // 2)] * 40
    for i in range(0, len(plan), 5):
        T = a.long_len if (i // 5) % 3 == 1 else a.seq_len
        plan[i + 2] = (max(4, a.gen_batch * G * 4 // 5 // T), T, T - T // 16 - 96)
    for B, T, P in plan:
        if time.time() - t0 > a.gen_seconds or (tok.is_cuda and torch.cuda.memory_allocated() > 85e9):
            break
        temps = torch.where(torch.rand(B, device=tok.device, generator=g) < a.hot_frac, 0.7, 0.0)
        pr = windows(tok, B, P, g)
        sy = torch.rand(B, device=tok.device, generator=g) < 0.25
        pr = torch.where(sy[:, None], windows(synth, B, P, g), pr)
        ids = generate(m, pr, T, temps, tab, g)
        n = max(1, 2**17 // T)
        feat = torch.cat([m(ids[i : i + n], tuple(t[:T] for t in tab))[1] for i in range(0, B, n)])
        rounds.append((ids.to(torch.int16), feat, P))
        seen += B * (T - P)
        sync()
        if len(rounds) in (1, 3, 5, 10):
            print("round", B, T, P, round(time.time() - t0, 1), "s", flush=True)
    print("generated", len(rounds), "rounds", seen, "tokens", round(time.time() - t0, 1), "s", flush=True)
    return rounds, seen


def train_drafter(m, rounds, tab, a, dev, save):
    """Online: frozen target features, anchors only where the next K-1 tokens are the target's own."""
    torch.manual_seed(a.seed + 1)
    g = torch.Generator(dev).manual_seed(a.seed + 1)
    r = random.Random(a.seed)
    d = Drafter().to(dev)
    mask_emb = nn.Parameter(m.embed_tokens.weight[MASK].detach().float().clone())
    par = [*list(d.parameters()), mask_emb]
    opt = make_opt(par, a.draft_lr)
    w = torch.exp(-torch.arange(BLOCK - 1, device=dev) / a.gamma)
    w = w / w.sum()
    t0 = time.time()
    step = 0
    log = []
    W = m.lm_head.weight
    acc = torch.zeros(BLOCK - 1, device=dev)
    nacc = 0
    while True:
        p = (time.time() - t0) / a.drafter_seconds
        if p >= 1:
            break
        ids, feat, P = rounds[r.randrange(len(rounds))]
        T = ids.shape[1]
        B = max(4, a.draft_batch * a.gen_len // T)
        rows = torch.randint(0, ids.shape[0], (B,), generator=g, device=dev)
        x, cap = ids[rows].long(), feat[rows]
        an = torch.randint(
            P, T - BLOCK + 1, (B, a.anchors), generator=g, device=dev
        )  # x[an+1 .. an+K-1] are labels
        y = x.gather(1, (an[..., None] + torch.arange(1, BLOCK, device=dev)).flatten(1)).view(
            B, -1, BLOCK - 1
        )
        for gr in opt.param_groups:
            gr["lr"] = a.draft_lr * schedule(p, hold=0.3)
        with torch.autocast(dev.type, torch.bfloat16):
            h = d(cap, block_embeds(m.embed_tokens, mask_emb, x, an).to(torch.bfloat16), an, tab)
            lg = F.linear(h[:, :, 1:].to(W.dtype), W)  # [B, N, K-1, V]
        ce = F.cross_entropy(lg.flatten(0, 2).float(), y.flatten(), reduction="none").view(-1, BLOCK - 1)
        (ce * w).sum(-1).mean().backward()
        nn.utils.clip_grad_norm_(par, 1.0, foreach=True)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step % 20 == 0:
            acc += (lg.argmax(-1) == y).float().mean((0, 1))
            nacc += 1
        if step in (20, 100) or step % 1000 == 0:
            sync()
            n = time.time()
            log.append(
                {
                    "step": step,
                    "seconds": round(n - t0, 1),
                    "slot_acc": [round(float(v), 3) for v in acc / nacc],
                    "ms_per_step": round(1e3 * (n - t0) / step, 2),
                }
            )
            print("drafter", log[-1], flush=True)
            acc.zero_()
            nacc = 0
        elif step % 10 == 0:
            sync()
        if step % 8000 == 0:
            save(d, mask_emb)
    save(d, mask_emb)
    return (
        d,
        mask_emb,
        {"steps": step, "seconds": time.time() - t0, "anchors": step * a.draft_batch * a.anchors, "log": log},
    )
