"""Acceptance, perplexity and losslessness, fp32 on a CPU."""

# ruff: noqa: B023  (the closures are called in the loop pass that makes them)

import heapq
import json
import math
from pathlib import Path

import model
import numpy as np
import torch
from checkpoint import load_drafter, load_target, write_json
from model import BLOCK, CFG, EOT, IM_END, MASK, block_embeds, rope_table
from training import lm_loss


def best_first_tree(lp, rows):
    """lp [K-1][k] descending log-probs per depth. The `rows` (root included) prefixes with the largest
    product of marginals: [(depth, rank, parent)], node 0 is the root."""
    nodes = [(0, -1, -1)]
    h = [(-lp[0][0], (0,), 1, 0, 0)]
    while h and len(nodes) < rows:
        s, key, d, r, p = heapq.heappop(h)
        me = len(nodes)
        nodes.append((d, r, p))
        if r + 1 < len(lp[0]):
            heapq.heappush(h, (s + lp[d - 1][r] - lp[d - 1][r + 1], (*key[:-1], r + 1), d, r + 1, p))
        if d < len(lp):
            heapq.heappush(h, (s - lp[d][0], (*key, 0), d + 1, 0, me))
    return nodes


def walk(nodes, toks, target):
    """Longest root path of the tree whose tokens follow target [K-1]; returns the node list, root first."""
    kids = {(p, toks[d - 1][r]): i for i, (d, r, p) in enumerate(nodes) if i}
    path = [0]
    for t in target:
        n = kids.get((path[-1], t))
        if n is None:
            break
        path.append(n)
    return path


class Ref:
    """Plain, chain and tree decoding with one KV cache, batch 1, greedy."""

    def __init__(s, m, d, maxlen=2048):
        s.m, s.d, s.tab, s.maxlen = m, d, rope_table(maxlen + 64, torch.device("cpu")), maxlen

    def fwd(s, ids, pos, t, mask=None):
        """ids, pos: lists of S. Runs the target on t cached tokens -> (argmax, captured [S, C*H])."""
        p = torch.tensor(pos)
        h, cap = s.m(torch.tensor([ids]), tuple(c[p] for c in s.tab), mask=mask, caches=s.cache, t=t)
        return s.m.lm_head(h[0]).argmax(-1).tolist(), cap[0]

    def prefill(s, ids):
        s.cache = s.m.new_cache(1, s.maxlen, s.m.lm_head.weight)
        g, s.cap = s.fwd(ids, range(len(ids)), 0)
        return g[-1]

    def draft(s, bonus, n, k, slot0=None):
        """Per-position marginals of the block at n: (tokens [K-1][k], log-probs [K-1][k])."""
        e = s.m.embed_tokens.weight
        x = torch.stack([e[bonus if slot0 is None else slot0]] + [e[MASK]] * (BLOCK - 1))[None]
        h = s.d(s.cap[None, :n], x, torch.tensor([[n]]), s.tab)[0, 0, 1:]
        lp, tk = s.m.lm_head(h).log_softmax(-1).topk(k, -1)
        return tk.tolist(), lp.tolist()

    @torch.no_grad()
    def run(s, prompt, new, mode, rows=None, cap=None):
        """mode: 'ar' | 'chain' | 'tree'. Returns (new token ids, decode steps)."""
        b = s.prefill(prompt)
        out = [b]
        n = len(prompt)
        steps = 0
        while len(out) < new:
            steps += 1
            if mode == "ar":
                g, c = s.fwd([b], [n], n)
                acc = [g[0]]
                keep = [0]
            elif mode == "chain":
                tk, _ = s.draft(b, n, 1)
                dr = [t[0] for t in tk]
                S = len(dr) + 1
                mask = torch.cat(
                    [torch.ones(S, n, dtype=torch.bool), torch.ones(S, S, dtype=torch.bool).tril()], 1
                )[None, None]
                g, c = s.fwd([b, *dr], range(n, n + S), n, mask)
                k = 0
                while k < len(dr) and dr[k] == g[k]:
                    k += 1
                acc, keep = g[: k + 1], list(range(k + 1))
            else:
                tk, lp = s.draft(b, n, cap)
                nodes = best_first_tree(lp, rows)
                S = len(nodes)
                anc = torch.eye(S, dtype=torch.bool)
                for i, (_, _, p) in enumerate(nodes):
                    if i:
                        anc[i] |= anc[p]
                ids = [b] + [tk[d - 1][r] for d, r, _ in nodes[1:]]
                mask = torch.cat([torch.ones(S, n, dtype=torch.bool), anc], 1)[None, None]
                g, c = s.fwd(ids, [n + d for d, _, _ in nodes], n, mask)
                kids = {(p, ids[i]): i for i, (_, _, p) in enumerate(nodes) if i}
                keep = [0]
                while (keep[-1], g[keep[-1]]) in kids:
                    keep.append(kids[keep[-1], g[keep[-1]]])
                acc = [g[i] for i in keep]
                for kb, vb in s.cache:  # compact the accepted path
                    i = torch.tensor(keep) + n
                    kb[:, :, n : n + len(keep)], vb[:, :, n : n + len(keep)] = (
                        kb[:, :, i].clone(),
                        vb[:, :, i].clone(),
                    )
            s.cap = torch.cat([s.cap, c[keep]])
            n += len(keep)
            out += acc
            b = acc[-1]
        return out[:new], steps


def cmd_eval(a):
    torch.set_num_threads(a.threads)
    dev = torch.device("cpu")
    m, d = (
        load_target(f"{a.pair}/target", torch.float32, dev),
        load_drafter(f"{a.pair}/drafter", torch.float32, dev),
    )
    ref = Ref(m, d)
    prompts = json.loads(Path(a.data, "prompts.json").read_text())["test"]
    rep = {}
    configs = [(r, c) for c in (4, 8) for r in (8, 16, 32, 64)]
    for cat, ps in prompts.items():
        ps = ps[: a.prompts]
        R = dict(
            chain=[0, 0], mask0=[0, 0], ids_off=[0, 0], **{f"tree_r{r}_k{c}": [0, 0] for r, c in configs}
        )
        surv, hit = [0] * 7, [0] * 7
        fresh = {"fresh": [0, 0], "loop": [0, 0]}
        uniq = []
        per = []
        topk = [[0] * 8 for _ in range(7)]
        na = 0
        with torch.no_grad():
            v = torch.from_numpy(np.load(f"{a.data}/val_{cat}.npy").astype(np.int64))
            n = min(12, len(v) // 2048)
            v = v[: n * 2048].view(n, 2048)
            h = torch.cat([m(v[i : i + 1, :-1], tuple(t[:2047] for t in ref.tab))[0] for i in range(n)])
            ppl = math.exp(float(lm_loss(h, m.lm_head.weight, v[:, 1:])))
        for p in ps:
            P = len(p["ids"])
            out, _ = ref.run(p["ids"], a.new + BLOCK, "ar")
            end = min([a.new] + [i + 1 for i, t in enumerate(out) if t in (EOT, IM_END)])  # tokens that count
            full = p["ids"] + out
            uniq.append(len(set(zip(*(out[j:end] for j in range(4)), strict=False))) / max(1, end - 3))
            A = list(range(P, P + end))
            A = [x for x in A if x + BLOCK <= len(full)]

            def marg(cap, slot0=None):
                an = torch.tensor([A])
                ids = torch.tensor([full])
                x = block_embeds(m.embed_tokens, m.embed_tokens.weight[MASK], ids, an)
                if slot0 is not None:
                    x = x.view(1, len(A), BLOCK, -1).clone()
                    x[:, :, 0] = m.embed_tokens.weight[slot0]
                    x = x.flatten(1, 2)
                lp, tk = m.lm_head(d(cap, x, an, ref.tab)[0, :, 1:]).log_softmax(-1).topk(8, -1)
                return lp.tolist(), tk.tolist()

            with torch.no_grad():
                cs = tuple(t[: len(full)] for t in ref.tab)
                _, cap = m(torch.tensor([full]), cs)
                lp, tk = marg(cap)
                _, tk0 = marg(cap, MASK)
                model.CAPTURE = [i - 1 for i in model.CAPTURE]
                _, cap1 = m(torch.tensor([full]), cs)
                model.CAPTURE = [i + 1 for i in model.CAPTURE]
                _, tk1 = marg(cap1)
            lab = [full[x + 1 : x + BLOCK] for x in A]
            for i in range(len(A)):
                na += 1
                for k in range(7):
                    if lab[i][k] in tk[i][k]:
                        topk[k][tk[i][k].index(lab[i][k])] += 1

            def sim(name, accept):
                i = st = 0
                while i < len(A) and i < end - 1:
                    n = accept(i)
                    st += 1
                    i += n + 1
                R[name][0] += min(i, end - 1)
                R[name][1] += st
                return min(i, end - 1) / max(1, st)

            def chain(tk):
                def f(i):
                    k = 0
                    while k < 7 and tk[i][k][0] == lab[i][k]:
                        k += 1
                    return k

                return f

            c0 = chain(tk)

            def chain_stat(i):
                k = c0(i)
                g = tuple(full[A[i] + 1 : A[i] + 5])  # has this 4-gram been seen before?
                f = fresh["loop" if any(tuple(full[j : j + 4]) == g for j in range(A[i] - 3)) else "fresh"]
                f[0] += k + 1
                f[1] += 1
                for j in range(min(k + 1, 7)):
                    surv[j] += 1
                    hit[j] += j < k
                return k

            per.append(sim("chain", chain_stat))
            sim("mask0", chain(tk0))
            sim("ids_off", chain(tk1))
            for r, c in configs:
                sim(
                    f"tree_r{r}_k{c}",
                    lambda i: len(walk(best_first_tree([x[:c] for x in lp[i]], r), tk[i], lab[i])) - 1,
                )
        rep[cat] = {
            "prompts": len(ps),
            "new_tokens": R["chain"][0],
            "ppl": ppl,
            "tau": {k: v[0] / v[1] for k, v in R.items()},
            "cond_accept": [h / max(1, s) for h, s in zip(hit, surv, strict=False)],
            "chain_tau_fresh": fresh["fresh"][0] / max(1, fresh["fresh"][1]),
            "chain_tau_loop": fresh["loop"][0] / max(1, fresh["loop"][1]),
            "fresh_step_share": fresh["fresh"][1] / max(1, fresh["fresh"][1] + fresh["loop"][1]),
            "chain_tau_min": min(per),
            "chain_tau_max": max(per),
            "uniq_4gram": sum(uniq) / len(uniq),
            "top_rank_all_anchors": [[round(x / na, 4) for x in t] for t in topk],
        }
        # the real loops: same tokens as plain greedy?
        ok = {"chain": [0, 0], "tree": [0, 0]}
        sc = st = em = 0
        for p in ps[: a.lossless]:
            base, _ = ref.run(p["ids"], a.new, "ar")
            for mode, kw in (("chain", {}), ("tree", {"rows": 32, "cap": 4})):
                o, k = ref.run(p["ids"], a.new, mode, **kw)
                ok[mode][0] += o == base
                ok[mode][1] += 1
                if mode == "chain":
                    sc += k
                else:
                    st += k
            em += a.new - 1
        rep[cat]["lossless"] = {k: f"{x}/{y}" for k, (x, y) in ok.items()}
        rep[cat]["real_loop_tau"] = {"chain": em / sc, "tree_r32_k4": em / st}
        print(cat, json.dumps({k: v for k, v in rep[cat].items() if k != "top_rank_all_anchors"}), flush=True)
    if a.contexts:  # chain tau against prompt length, held-out streams, 4 prompts x 64 tokens
        ref = Ref(m, d, CFG["max_position_embeddings"])
        for cat in ("code", "prose"):
            v = np.load(f"{a.data}/val_{cat}.npy").astype(int)
            rep[cat]["tau_by_context"] = {}
            for L in map(int, a.contexts.split(",")):
                st = sum(
                    ref.run(v[20000 + 30000 * k : 20000 + 30000 * k + L].tolist(), 64, "chain")[1]
                    for k in range(4)
                )
                rep[cat]["tau_by_context"][L] = 4 * 63 / st
            print(cat, rep[cat]["tau_by_context"], flush=True)
    write_json(a.report, rep)
