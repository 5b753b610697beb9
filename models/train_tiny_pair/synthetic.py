"""Text made up by seed: step-by-step reasoning, and text that repeats."""

NAMES = [
    "Ann",
    "Ben",
    "Carla",
    "Deniz",
    "Emre",
    "Fay",
    "Gita",
    "Hugo",
    "Iris",
    "Jon",
    "Kai",
    "Lena",
    "Milo",
    "Nora",
    "Omar",
    "Pia",
    "Quinn",
    "Rosa",
    "Sven",
    "Tara",
    "Uma",
    "Vito",
    "Wen",
    "Yara",
    "Zoe",
]
THINGS = [
    "apples",
    "books",
    "coins",
    "pens",
    "stamps",
    "tickets",
    "marbles",
    "shells",
    "cards",
    "seeds",
    "bolts",
    "cups",
]


def chat(q, a):
    return f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n{a}<|im_end|>\n"


def long_add(r):
    n = r.randint(2, 6)
    a, b = r.randrange(10 ** (n - 1), 10**n), r.randrange(10 ** (n - 1), 10**n)
    out, c = [f"We add {a} and {b} digit by digit, from the right."], 0
    for i, (x, y) in enumerate(zip(str(a)[::-1], str(b)[::-1], strict=False)):
        t = int(x) + int(y) + c
        out.append(f"Step {i + 1}: {x} + {y} + carry {c} = {t}, write {t % 10}, carry {t // 10}.")
        c = t // 10
    if c:
        out.append(f"The last carry is {c}, so we write {c} in front.")
    return f"What is {a} + {b}? Think step by step.", "\n".join([*out, f"The answer is {a + b}."])


def long_mul(r):
    a, b = r.randint(12, 999), r.randint(12, 99)
    t, u = b // 10, b % 10
    return (
        f"What is {a} * {b}? Think step by step.",
        f"We split {b} into {t * 10} + {u}.\nStep 1: {a} * {u} = {a * u}.\n"
        f"Step 2: {a} * {t} = {a * t}, so {a} * {t * 10} = {a * t * 10}.\n"
        f"Step 3: {a * t * 10} + {a * u} = {a * b}.\nThe answer is {a * b}.",
    )


def story(r):
    n, o, th = r.choice(NAMES), r.choice(NAMES), r.choice(THINGS)
    have = r.randint(3, 60)
    steps = [f"{n} starts with {have} {th}."]
    q = f"{n} has {have} {th}."
    for i in range(r.randint(2, 6)):
        k = r.randint(2, 30)
        if r.random() < 0.5 and have - k >= 0:
            q += f" Then {n} gives {k} {th} to {o}."
            steps.append(
                f"Step {i + 1}: {n} gives away {k}, so {have} - {k} = {have - k}. "
                f"Now {n} has {have - k} {th}."
            )
            have -= k
        else:
            q += f" Then {o} gives {n} {k} more {th}."
            steps.append(
                f"Step {i + 1}: {n} gets {k} more, so {have} + {k} = {have + k}. Now {n} has {have + k} {th}."
            )
            have += k
    return q + f" How many {th} does {n} have now? Think step by step.", "\n".join(
        [*steps, f"So {n} has {have} {th}.", f"The answer is {have}."]
    )


def sequence(r):
    s, d, n = r.randint(1, 50), r.randint(2, 12), r.randint(5, 12)
    v = [s + d * i for i in range(n)]
    return (
        f"A sequence starts at {s} and grows by {d} each time. List the first {n} terms. Think step by step.",
        "\n".join(
            [f"Term 1 is {s}."]
            + [f"Term {i + 1} is {v[i - 1]} + {d} = {v[i]}." for i in range(1, n)]
            + ["The terms are " + ", ".join(map(str, v)) + "."]
        ),
    )


def sort_words(r):
    w = r.sample(NAMES + THINGS, r.randint(4, 8))
    left, out = list(w), []
    st = []
    while left:
        m = min(left, key=str.lower)
        left.remove(m)
        out.append(m)
        st.append(f"Step {len(out)}: the smallest remaining word is {m}. The list is now {', '.join(out)}.")
    return f"Sort these words by alphabet: {', '.join(w)}. Think step by step.", "\n".join(
        [*st, f"The answer is {', '.join(out)}."]
    )


REASON = [long_add, long_add, long_mul, story, story, sequence, sort_words]


def repetitive(r, docs):
    """Text that repeats: words, logs, JSON rows, tables, rulers, settings, or a real snippet."""
    k = r.randrange(8)

    def word():
        return "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randint(3, 8)))

    if k == 0:
        s = " ".join(word() for _ in range(r.randint(4, 14))) + ". "
        return s * r.randint(8, 30)
    if k == 1:
        f, level = word(), r.choice(["INFO", "DEBUG", "WARN"])
        h = r.randrange(24)
        s0 = r.randrange(60)
        return "".join(
            f"2026-01-{r.randint(1, 28) if i < 0 else 11:02d} {h:02d}:{(s0 + i) // 60 % 60:02d}:"
            f"{(s0 + i) % 60:02d} {level} {f}: request {i} done, status=200\n"
            for i in range(r.randint(12, 50))
        )
    if k == 2:
        c = [word() for _ in range(3)]
        return (
            "[\n"
            + "".join(
                f'  {{"id": {i}, "{c[0]}": "{c[1]}", "{c[2]}": true}},\n' for i in range(r.randint(10, 40))
            )
            + "]\n"
        )
    if k == 3:
        a, b = word(), word()
        return "".join(f"| {a} | {i} | {b} |\n" for i in range(r.randint(10, 50)))
    if k == 4:
        c = r.choice("=-*#.~")
        n = r.randint(10, 60)
        t = word()
        return (c * n + "\n" + t + "\n") * r.randint(8, 25)
    if k >= 6:
        d = r.choice(docs)
        n = r.randint(80, 400)
        i = d.find("\n", r.randrange(max(1, len(d) - n))) + 1
        return (d[i : i + n].strip("\n") + "\n\n") * r.randint(4, 14)
    s = "".join(f"{word()} = {r.randint(0, 99)}\n" for _ in range(r.randint(3, 9)))
    return (s + "\n") * r.randint(6, 20)


def docstring_qa(py):
    """Chat Q/A from docstrings: ('What does f do?', first paragraph)."""
    import ast

    out = []
    try:
        t = ast.parse(py)
    except (SyntaxError, ValueError):
        return out
    for n in ast.walk(t):
        if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_"):
            d = ast.get_docstring(n)
            if d and 60 < len(d) < 1200:
                kind = "class" if isinstance(n, ast.ClassDef) else "function"
                out.append(chat(f"What does the {kind} `{n.name}` do?", d.split("\n\n")[0]))
    return out
