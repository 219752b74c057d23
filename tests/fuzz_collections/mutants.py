"""Projects with one thing wrong in each: what a checker of collections must survive.

The same examples give the same mutants in the same order, whatever machine makes them.
"""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import yaml

Project = dict[str, str]
Path = tuple[Any, ...]  # keys and places in lists


def words(text: str) -> list[str]:
    """The words of a text, in which a blank behind a backslash is one of a word."""
    return [word.replace("\\ ", " ") for word in re.findall(r"(?:\\ |\S)+", text)]


# Values as they stand in a file, to be put in place of each value of the examples.
NUMBERS = words("""
    0 -1 1 2 3 7 64 65 100 101 512 1000 1001 1440 65535 65536 9007199254740993
    99999999999999999999999999 0x10 0o17 017 08 1_000 +5 0b1 1e3 1E400 1.0 5.0 -0.0 0.5 1.5 .5 5.
    .inf -.inf .Inf .nan 1:30 0x 1e 1.2.3 ٣
""")
WORDS = words("""
    null ~ Null NULL nULL true True TRUE false yes no on off y "true" 'null' "" '' " " "5" '1.2' 1.2
    2026-04-01 "2026-04-01" 2026-13-45 "2026-02-30" 2026-04-01T10:00:00Z "20260401" "2026-W14-3"
    "0000-00-00" "2026-4-1" << = x X x-y x_y "a\\tb" "x\\n" "line\\nline" "\\0" "\\e[31m" "\\x7f"
    "\\u0085" "\\u2028" "\\u202e" "\\ufeff" "\\ud800" "\\ud83d\\ude00" "\\U0001F600" "\\U00110000"
    "\\q" é 𝒳 "e\\u0301" ﬁ １ "{actorId}" "{unknown}" "{" "}" "/a//b" "/" "../../x" env:NAME "env:"
    "env: NAME" "env:a-b" "#" x#y "secrets/a#b" "https://u:p@example.com/" "http://x"
    "https://x/v1/" "redis://:pw@h:1" "ftp://x" "https://" "https://[::1]/" "https://h:99999" "://"
    "arn:aws:lambda:eu-west-1:123456789012:function:f" "arn:aws:lambda:x" "arn:" "1.0.0" "01.0.0"
    "1.0.0-rc.1" "1.0" "99999999999999999999.0.0" session project user none draft active deprecated
    disabled valkey s3 custom agentcore_memory rest-api lambda oauth2 service-account iam-role
    api-key bearer-token none env aws_secrets_manager gcp_secret_manager Event RequestResponse raw
    json aws gcp read write read-write deny toString constructor __proto__ hasOwnProperty
""")
SHAPES = words("""
    [] {} [1] [null] [[]] [x,x] [{}] {a:} {a:\\ 1} {a:\\ {b:\\ {c:\\ 1}}} {"":\\ 1} {1:\\ 1}
    {null:\\ 1} {a,b} {__proto__:\\ 1} {constructor:\\ 1} {[]:\\ 1} {a:\\ 1,a:\\ 2} [429,503] [99]
    [600] [true] ["429"] [1.5] ["/x/{actorId}"] {"/a/{actorId}":\\ {}} {"/a":\\ {top_k:\\ 0}}
    {"/a":\\ null} {"/a":\\ {relevance_score:\\ 2}} {"/a":\\ {other:\\ 1}} {type:\\ custom}
    {scheme:\\ none} {scheme:\\ oauth2} {scheme:\\ x} {scheme:\\ iam-role} [a [a,] [a,,b] {a:\\ 1 ]
""")
MARKUP = words("""
    &a &a\\ x *a *missing &a\\ [*a] !!str\\ 5 !!int\\ "5" !!python/object/apply:os.system\\ [x]
    !x\\ y ! !<x>\\ y !!binary\\ aGk= !!set\\ {a} !!timestamp\\ 2026-01-01 {<<:\\ {a:\\ 1}}
    {<<:\\ *a}
    "open 'open "a"b 'a'b 'it''s' @x `x` %x |\\ x >x - -\\ x ?\\ x ?x :x a:\\ b a:b a\\ #b a#b #b ,
    [,] {,} ,x %YAML --- ... "...\\n---" ---x
""")
LONG = ["x" * 64, "x" * 65, "x" * 5000, "9" * 5000, "1e" + "9" * 400, "0x" + "f" * 300]
LONG += ["[" * 30 + "]" * 30, "[" * 5000, "[" * 5000 + "]" * 5000, "{a: " * 40 + "}" * 40]
LONG += ['"' + "é" * 3000 + '"', '"/' + "a" * 510 + '"', '"/' + "a" * 512 + '"']
LONG += ["|\n  text\n  more", ">-\n  folded\n\n  text"]
VALUES = NUMBERS + WORDS + SHAPES + MARKUP + LONG
# Those for a field that another example has had with all of them.
BASIC = ["", "null", "true", "false", "5", "1.5", '""', '"x"', "[]", "[x]", "{}", "{a: 1}", "*a"]
BASIC += words("draft deprecated disabled session project user none read write deny")
# Lines that are YAML, or nearly, and that parsers read in different ways; ~ ends a line.
SYNTAX = r"""a: "x"#c
a: 'x'#c|a: [1]#c|a: {b: 1}#c|a: "x" #c|a: "x"y|a: "x" : 1|a: x: y|a: x #c|a: b:
a: [~1,~2]|a: [~ 1,~ 2~]|a:~  b: [~    1~  ]|a:~  b: [~  1~  ]|a: [~  [1~]~]|a: [~  #c~# d~  1]
a: [x y, z~  w]|a: [x~  #c~  ,y]|a: {x, y}|a: {x: , y: 1}|a: [,]|a: {,}|a: [x,,y]|a: [x,]|a:~  'x'
a: |2~   x|a: |~   x~  y|a: |9~ x|a: >+~~~|a: |x|a: >1-~ x|a: ?~ x|a: "x~  y"|a: "x~y"|a: 'x~~ y'
a: x~  y|a: x~y|a:~- 1~- 2|a:~  - 1~ - 2|a:~    b: 1~  c: 2|a: - b|"a":1|a:1|a|a~b: 1|a b: 1
a:~'x'|a: 1~a|a: -|a: -x|a: ?x|a: :b|?a: 1|:a: 1|a::b: 1|a: b::c|a: ::|a: ,x|? a|? a~: b|? [a]~: b
: b|"a": *b|*x : 1|&x a: 1|!!str a: 1|a: &x &y b|a: &x~  b: 1|a:~  &x~  b: 1|a: &x *y|a: !e!x b
a: !!x|a: [&x]|a: [&x , *y ]|a: [a: b, c: d]|a: [? a : b]|a: {? a : b}|a: {? a}|a: {[a]: b}
a: {{a: 1}: b}|a: {"a"b}|a: [a]b|a: ["a" "b"]|a: {"a" : 1}|a: {"a":1,"b":2}|a: ['a':1]|a: {a b: 1}
a: {a~  b: 1}|a: {"a~  b": 1}|a: [a~  b: 1]|a: [-, -x]|a: [-]|a: [- x]|a: {-: 1}|a: [?]|a: {?}
a: [ : x]|a:~  - - 1~    - 2|a:~  -~    a: 1|a:~  -   a: 1~      b: 2|a:   #c~  b: 1
a:~  "x"|a:~"x"|a: "\ "|a:~  |~  x|a:~  >-~    x|a: <<|"<<": 1|<<: 1|<<: {b: 1}|=: 1
a: {b: 1, b: 2}|a: [{b: 1, b: 2}]|a: "x\~  y"|a: "x\"|a: 'x''|a: ''''|a: "\x4"|a: "\/"
a: "\N\_\L\P"|null: 1|1: 1|a: "\~"|a: "\u12"|true: 1|"true": 1|Null: 1|1.0: 1|.inf: 1|0x1: 1
[a]: 1|{a: 1}: 1|a: &x [*x]|a: # c|a:#c|a :1|a : 1|- a|  b: 1|a: 1~  b: 2|a:~ b: 1~~~ c: 2
a:~  - b~  c: 1|a:~  - b: 1~   c: 2|a: [b~]|a: {b: 1~}|a:~- [~1~]|a:~  - {b:~    1}
a:~  - {b:~  1}|a: [b]: c|a: {b}: c|[a, b]: c|{a}: c|a: 'b': c|a: "b|a: &x~b: 1|a:~  - &x~  - 1
a:~  - &x~    b: 1|a: !!map~  b: 1|a:~  - !x~    b: 1|a: |~x|a: |~~ x|a: >|a: |~  x~ y
a: |~  # x~# y|a: >~~  x~b: 1|a: |+1~  x|a: |-+~ x|a: |0~ x|a: x~# c~  y|a: x # c~  y
a: [x # c~  , y]|a: [x# c]|a: {x: 1# c}|a: ["x"# c]|a: ["x" # c~  ]|a: {x: "1"# c~  }
a: [[1]# c~  ]"""

# What is put somewhere into a text.
SNIPPETS = [*"\t \n\r\ufeff\0\x07\x7f\x85\xa0\u2028\u200b\U0001f600'\":#!{}[],|>%@`\\x0é"]
SNIPPETS += ["  ", "\r\n", "\n\n", ": ", "- ", " #", "&a ", "*a", "? ", "---\n", "...\n", "<<: a"]
SNIPPETS += ["&a [", "!!str ", "x: 1\n", "  x: 1\n", "\tx: 1\n", "- x\n", "---", "\x1b["]


def mutants(examples: dict[str, Project]) -> Iterator[tuple[str, Project]]:
    """The name of each mutant, `<example> <file> <what>`, and its files by path."""
    seen: set[tuple[str, Path]] = set()
    texts = [text for project in examples.values() for text in project.values()]
    names = {str(way[-1]) for text in texts for way in fields(split(text)[0])} - set("0123456789")
    for name, project in sorted(examples.items()):
        for path, text in sorted(project.items()):
            changes = [*field_mutants(path, text, seen), *text_mutants(text)]
            changes += added(text, names)
            yield f"{name} {path} left out", {k: v for k, v in project.items() if k != path}
            for what, changed in changes:
                if changed != text:
                    yield f"{name} {path} {what}", {**project, path: changed}


def field_mutants(path: str, text: str, seen: set[tuple[str, Path]]) -> Iterator[tuple[str, str]]:
    """Each field deleted, renamed, repeated, and with each other value.

    A field that an earlier example had (`seen`) gets the basic values only.
    """
    tree, rest = split(text)
    kind = path.split("/")[0]
    for where in fields(tree):
        shown = ".".join(map(str, where))
        field = (kind, tuple("*" if isinstance(one, int) else one for one in where))
        values = BASIC if field in seen else VALUES
        seen.add(field)
        yield f"{shown} deleted", joined(without(tree, where), rest)
        if isinstance(where[-1], str):
            for new in (f"{where[-1]}x", where[-1].upper(), f"{where[-1]} ", "", "é", "a.b"):
                yield f"{shown} renamed {new!r}", joined(renamed(tree, where, new), rest)
            yield f"{shown} repeated", joined(repeated(tree, where), rest)
        for value in values:
            yield f"{shown} = {value[:40]!r}", joined(replaced(tree, where, Raw(value)), rest)


def added(text: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """Each mapping with a field of another, or of what is refused; and odd lines at the end."""
    tree, rest = split(text)
    names = names | {"project", "secret", "vault_url", "function_arn", "__proto__", "constructor"}
    for where in [(), *fields(tree)]:
        if isinstance(at(tree, where), dict):
            for name in sorted(names - at(tree, where).keys()):
                value = Raw("null" if len(name) % 2 else '"x"')
                changed = edited(tree, (*where, None), lambda _key, _value: [], [(name, value)])
                yield f"{'.'.join(map(str, where))} with {name}", joined(changed, rest)
    for line in re.split(r"\n|(?<!: )\|", SYNTAX):
        front = text.split("---\n")[1] + line.replace("~", "\n")
        yield f"and {line!r}", f"---\n{front}\n---\n{rest}"


def at(tree: Any, where: Path) -> Any:
    for step in where:
        tree = tree[step]
    return tree


def text_mutants(text: str) -> Iterator[tuple[str, str]]:
    """The text broken as editors, merges and enemies break it."""
    lines = text.splitlines(keepends=True)
    bomb = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
    many = "".join(f"k{i}: 1\n" for i in range(3000))
    deep = "".join(" " * i + "a:\n" for i in range(300))
    yield "empty", ""
    yield "only markers", "---\n---\n"
    yield "comments only", "---\n# nothing\n---\n"
    yield "a list", "---\n- a\n---\n"
    yield "a scalar", "---\nhello\n---\n"
    yield "two documents", text.replace("---\n", "---\na: 1\n...\n---\n", 1)
    yield "no first marker", text.removeprefix("---\n")
    yield "no last marker", text.replace("\n---\n", "\n", 1)
    yield "no markers", text.replace("---\n", "")
    yield "marker with blanks", text.replace("---\n", "--- \n", 2)
    yield "markers with words", text.replace("---\n", "--- # x\n", 1)
    yield "marker indented", " " + text
    yield "a line before", "\n" + text
    yield "long marker", text.replace("---\n", "----\n", 2)
    yield "CRLF", text.replace("\n", "\r\n")
    yield "CR", text.replace("\n", "\r")
    yield "BOM", "\ufeff" + text
    yield "BOM twice", "\ufeff\ufeff" + text
    yield "BOM and CRLF", "\ufeff" + text.replace("\n", "\r\n")
    yield "tabs", re.sub("^ +", "\t", text, flags=re.M)
    yield "tabs after colons", text.replace(": ", ":\t")
    yield "no blanks after colons", text.replace(": ", ":")
    yield "blanks at ends", text.replace("\n", " \n")
    yield "form feeds", text.replace("\n", "\n\f", 3)
    yield "directive", text.replace("---\n", "%YAML 1.1\n---\n", 1)
    yield "directive inside", text.replace("---\n", "---\n%YAML 1.1\n---\n", 1)
    yield "tag directive", text.replace("---\n", "---\n%TAG ! tag:x,2000:\n", 1)
    yield "alias bomb", text.replace("---\n", "---\na0: &a0 [x]\n" + bomb, 1)
    yield "alias to itself", text.replace("---\n", "---\na: &a [*a]\n", 1)
    yield "very large", text.replace("---\n", "---\n" + "# x\n" * 300_000, 1)
    yield "many keys", text.replace("---\n", f"---\n{many}", 1)
    yield "very deep", text.replace("---\n", f"---\n{deep}", 1)
    yield "flow", flow(text)
    yield "flow in lines", flow(text, indent=1)
    yield "body with markers", text + "---\na: 1\n---\n"
    yield "body of binary", text + "\0\x01\x1b"
    for size in range(0, len(text), max(1, len(text) // 12)):
        yield f"cut at {size}", text[:size]
    for i, line in enumerate(lines):
        if i % 2 == 0 or line.startswith("---"):
            yield f"line {i + 1} left out", "".join(lines[:i] + lines[i + 1 :])
            yield f"line {i + 1} indented", "".join([*lines[:i], " " + line, *lines[i + 1 :]])
        else:
            yield f"line {i + 1} twice", "".join([*lines[:i], line, *lines[i:]])
            yield f"line {i + 1} outdented", "".join([*lines[:i], line.lstrip(), *lines[i + 1 :]])
    chance = random.Random(text)
    for i in range(40):
        at, piece = chance.randrange(len(text)), chance.choice(SNIPPETS)
        cut = chance.choice([0, 0, 1, 2, 5])
        yield f"{i}: {piece!r} at {at} for {cut}", text[:at] + piece + text[at + cut :]


class Raw(str):
    """A value as it stands in a file."""

    __slots__ = ()


def split(text: str) -> tuple[Any, str]:
    """The front matter as values, and the rest of the text."""
    _, front, rest = text.split("---\n", 2)
    return yaml.load(front, yaml.BaseLoader), rest


def flow(text: str, indent: int | None = None) -> str:
    tree, rest = split(text)
    return f"---\n{json.dumps(tree, indent=indent)}\n---\n{rest}"


def fields(tree: Any, above: Path = ()) -> Iterator[Path]:
    """The way to each key and item."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from fields(value, (*above, key))


def edited(tree: Any, where: Path, edit: Any, more: Any = ()) -> Any:
    """A copy whose pair, where the last step of `where` leads, went through `edit`.

    `more` are pairs to put behind those of that mapping.
    """
    key, *deeper = where
    is_map = isinstance(tree, dict)
    pairs = pairs_of(tree)
    done: list[tuple[Any, Any]] = []
    for one, value in pairs:
        if one != key:
            done.append((one, value))
        elif deeper:
            done.append((one, edited(value, tuple(deeper), edit, more)))
        else:
            done += edit(one, value)
    if not deeper:
        done += more
    return Pairs(done) if is_map else [value for _, value in done]


class Pairs(list[tuple[Any, Any]]):
    """A mapping whose keys may come twice."""


def pairs_of(tree: Any) -> list[tuple[Any, Any]]:
    if isinstance(tree, dict):
        return list(tree.items())
    return list(tree) if isinstance(tree, Pairs) else list(enumerate(tree))


def without(tree: Any, where: Path) -> Any:
    return edited(tree, where, lambda _key, _value: [])


def renamed(tree: Any, where: Path, new: str) -> Any:
    return edited(tree, where, lambda _key, value: [(new, value)])


def repeated(tree: Any, where: Path) -> Any:
    return edited(tree, where, lambda key, value: [(key, value), (key, value)])


def replaced(tree: Any, where: Path, new: Any) -> Any:
    return edited(tree, where, lambda key, _value: [(key, new)])


def joined(tree: Any, rest: str) -> str:
    """The file with that front matter."""
    return f"---\n{written(tree)}---\n{rest}"


def written(tree: Any, indent: str = "") -> str:
    """The tree as YAML in block style."""
    lines = []
    is_map = isinstance(tree, dict | Pairs)
    for key, value in pairs_of(tree):
        head = f"{indent}{key if re.fullmatch('[a-z_]+', str(key)) else json.dumps(key)}:"
        if not is_map:
            head = f"{indent}-"
        if isinstance(value, dict | list) and value:
            lines.append(f"{head}\n{written(value, indent + '  ')}")
        elif isinstance(value, Raw):
            lines.append(f"{head} {value.replace(chr(10), chr(10) + indent)}\n")
        else:
            lines.append(f"{head} {scalar(value)}\n")
    return "".join(lines)


def scalar(value: Any) -> str:
    """A string of an example: bare where it stands for a number or a boolean."""
    is_bare = isinstance(value, str) and re.fullmatch(r"true|false|\d+|\d\.\d", value)
    return value if is_bare else json.dumps(value)
