"""The checks of `python -m hooks check`: this template passes them, and each one can fail."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import copier._template
import copier._user_data
import pytest

from hooks import check_questions, check_size
from hooks.lint import STAGES, lint
from hooks.template import TemplateError
from hooks.variants import VARIANTS
from tests.conftest import ROOT, Rendered

ANSWERS_TEMPLATE = "# Written by Copier.\n{{ _copier_answers | to_nice_yaml }}"

SOUND = {
    "copier.yml": """\
_min_copier_version: "9.15.0"
_subdirectory: template
_exclude: ["__pycache__"]
_envops: {undefined: jinja2.StrictUndefined, trim_blocks: true, lstrip_blocks: true}

project_name:
  type: str
  help: What is it called?
  default: my-agent
  validator: "{% if project_name != 'my-agent' %}Call it my-agent{% endif %}"
colour:
  type: str
  help: Which colour?
  choices: {Red: red, Blue: {value: blue, validator: ""}}
  default: red
red:
  type: str
  when: false
  default: "{{ '.' if colour == 'red' else '' }}"
blue:
  type: str
  when: false
  default: "{{ '.' if colour == 'blue' else '' }}"
""",
    "template/{{ _copier_conf.answers_file }}.jinja": ANSWERS_TEMPLATE,
    "template/README.md.jinja": "{{ project_name }}\n",
    "template/{{ red }}/src/app/main.py": "print('red')\n",
    "template/{{ blue }}/src/app/main.py": "print('blue')\n",
}

Files = dict[str, str]
Edit = Callable[[Files], object]


def replace(file: str, old: str, new: str) -> Edit:
    """An edit of one file, which must hold what it replaces."""

    def edit(files: Files) -> None:
        assert old in files[file]
        files[file] = files[file].replace(old, new, 1)

    return edit


def questions(old: str, new: str) -> Edit:
    return replace("copier.yml", old, new)


def setting(text: str) -> Edit:
    return lambda files: files.update({"copier.yml": text + "\n" + files["copier.yml"]})


def add(path: str, content: str = "x = 1\n") -> Edit:
    return lambda files: files.update({f"template/{path}": content})


def remove(path: str) -> Edit:
    return lambda files: files.pop(f"template/{path}")


def build(root: Path, files: Files) -> Path:
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
    return root


def append(text: str) -> Edit:
    return lambda files: files.update({"copier.yml": files["copier.yml"] + text})


def add_many(count: int) -> Edit:
    return lambda files: files.update({f"template/{n}.md": "a\n" for n in range(count)})


COLOUR = "colour: {type: str, help: Which, default: red, choices: [red, blue]}\n"
ALLOWED = 'validator: ""}}\n  default: red'
DISALLOWED = 'validator: "no"}}\n  default: blue'

FAULTS: list[tuple[str, Edit]] = [
    ("unknown-setting copier.yml:1 _taks is no setting", setting("_taks: []")),
    ("unknown-setting copier.yml:1 _exclud is no setting: write _exclude", setting("_exclud: []")),
    ("unsafe-feature copier.yml:1 _tasks makes Copier refuse", setting("_tasks: [date]")),
    ("unsafe-feature copier.yml:1 _migrations makes Copier refuse", setting("_migrations: []")),
    ("unsafe-feature copier.yml:1 _jinja_extensions", setting("_jinja_extensions: [a.B]")),
    ("unsafe-feature copier.yml:1 _external_data", setting("_external_data: {a: b.yml}")),
    ("unsafe-feature copier.yml:1 _skip_if_exists", setting("_skip_if_exists: [a]")),
    ("unsafe-feature copier.yml:1 _answers_file", setting("_answers_file: a.yml")),
    ("unsafe-feature copier.yml:1 _secret_questions", setting("_secret_questions: [a]")),
    ("unsafe-feature copier.yml:8 project_name.secret", questions("help: What", "secret: true #")),
    ("missing-setting copier.yml:2 _subdirectory", questions("ry: template", "ry: other")),
    (
        "missing-setting copier.yml _min_copier_version",
        questions('_min_copier_version: "9.15.0"\n', ""),
    ),
    (
        "missing-setting copier.yml:4 _envops",
        questions("jinja2.StrictUndefined", "jinja2.Undefined"),
    ),
    ("missing-setting copier.yml:3 _exclude", questions('"__pycache__"', "")),
    (
        "unknown-key copier.yml:9 project_name.defualt is no key: write default",
        questions("default:", "defualt:"),
    ),
    ("repeated-key copier.yml:24 colour is there twice", append(COLOUR)),
    ("incomplete-question copier.yml:6 project_name has no type", questions("  type: str\n", "")),
    (
        "incomplete-question copier.yml:6 project_name has no help",
        questions("  help: What is it called?\n", ""),
    ),
    (
        "incomplete-question copier.yml:6 project_name has no default",
        questions("  default: my-agent\n", ""),
    ),
    (
        "incomplete-question copier.yml:6 project_name takes any answer",
        questions("validator:", "placeholder:"),
    ),
    ("incomplete-question copier.yml:1 model is not a mapping", setting("model: bedrock")),
    (
        "long-help copier.yml:8 project_name.help is longer than 60",
        questions("What is it", "What " * 12 + "is it"),
    ),
    (
        "refused-default copier.yml:9 project_name.default 'agent' is refused by its own",
        questions("default: my-agent", "default: agent"),
    ),
    (
        "refused-default copier.yml:15 colour.default 'green' is refused",
        questions("default: red", "default: green"),
    ),
    ("refused-default copier.yml:15 colour.default 'blue' is", questions(ALLOWED, DISALLOWED)),
    (
        "jinja-undefined copier.yml:19 uses color, which no question",
        questions("colour == 'red'", "color == 'red'"),
    ),
    (
        "jinja-undefined copier.yml:9 uses colour, which no question",
        questions("default: my-agent", 'default: "{{ colour }}"'),
    ),
    ("jinja-undefined copier.yml:1 uses projct", setting("_message_after_copy: '{{ projct }}'")),
    ("jinja-syntax copier.yml:10 does not compile", questions("{% endif %}", "{% endfi %}")),
    (
        "answers-file template/{{ _copier_conf.answers_file }}.jinja is missing",
        remove("{{ _copier_conf.answers_file }}.jinja"),
    ),
    (
        "jinja-undefined template/README.md.jinja:2 uses projct_name",
        add("README.md.jinja", "{{ project_name }}\n{{ projct_name }}\n"),
    ),
    ("jinja-undefined template/{{ rde }}/x.py uses rde", add("{{ rde }}/x.py")),
    (
        "jinja-syntax template/README.md.jinja:2 does not compile",
        add("README.md.jinja", "a\n{{ project_name ! }}\n"),
    ),
    ("jinja-unused template/x.py.jinja uses no answer", add("x.py.jinja")),
    (
        "jinja-unrendered template/x.py:2 would show {{ project_name }}",
        add("x.py", "\n# {{ project_name }}\n"),
    ),
    ("name-character template/a\"b.py has '\"' in its name", add('a"b.py')),
    ("name-character template/a|b has '|' in its name", add("a|b/x.py")),
    ("name-character template/a:b.py", add("a:b.py")),
    ("name-character template/a*.py", add("a*.py")),
    ("name-character template/a?.py", add("a?.py")),
    ("name-character template/a<b>.py", add("a<b>.py")),
    ("name-character template/a\\b.py", add("a\\b.py")),
    ("name-ending template/a. ends in a dot", add("a./x.py")),
    ("name-ending template/a .jinja ends in a dot or a space", add("a .jinja", "{{ colour }}")),
    ("name-device template/aux.py is a device", add("aux.py")),
    ("name-device template/COM1 is a device", add("COM1/x.py")),
    (
        "name-case template/readme.md.jinja differs from template/README.md.jinja",
        add("readme.md.jinja", "{{ colour }}"),
    ),
    ("lock-file template/{{ red }}/uv.lock is written by", add("{{ red }}/uv.lock")),
    (
        "layer-overlap template/{{ red }}/src/app/main.py goes to src/app/main.py, as template/s",
        add("src/app/main.py"),
    ),
    (
        "layer-overlap template/{{ red }}/src/app/main.py goes to",
        questions("colour == 'blue'", "colour"),
    ),
    (
        "never-rendered template/{{ blue }}/src/app/main.py",
        questions("colour == 'blue'", "colour == 'bleu'"),
    ),
    ("render-failed strands-python", add("README.md.jinja", "{{ project_name | int / 0 }}\n")),
    ("size-files strands-python has 26 files, 24 are allowed", add_many(24)),
    ("size-lines strands-python has 1365 lines, 1360 are allowed", add("long.md", "a\n" * 1360)),
    ("size-module long.py has 151 lines, 150 are allowed", add("long.py", "a = 1\n" * 151)),
    ("size-module long.ts has 151 lines, 150 are allowed", add("long.ts", "a = 1\n" * 151)),
    ("size-columns wide.md:2 has 101 columns, 100 are allowed", add("wide.md", "a\n" + "a" * 101)),
]


def test_this_template_passes_every_check_of_its_source() -> None:
    assert [str(finding) for finding in lint(ROOT, STAGES[:-1])] == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_this_template_passes_every_check_of_a_render(variant: str, rendered: Rendered) -> None:
    assert STAGES[-1] == [check_size.check_size]
    assert [str(finding) for finding in check_size.check_project(variant, rendered(variant))] == []


@pytest.fixture
def few_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render a template of these tests once and not for each variant, which it has none of."""
    monkeypatch.setattr(check_size, "VARIANTS", ["strands-python"])


@pytest.mark.usefixtures("few_variants")
def test_a_sound_template_passes_every_check(tmp_path: Path) -> None:
    assert lint(build(tmp_path, SOUND)) == []


@pytest.mark.usefixtures("few_variants")
@pytest.mark.parametrize(("expected", "edit"), FAULTS, ids=[expected for expected, _ in FAULTS])
def test_a_fault_is_found_where_it_is(expected: str, edit: Edit, tmp_path: Path) -> None:
    files = dict(SOUND)
    edit(files)
    findings = [str(finding) for finding in lint(build(tmp_path, files))]
    assert any(finding.startswith(expected) for finding in findings), findings


def test_every_kind_of_finding_has_a_fault_above() -> None:
    paths = [*(ROOT / "hooks").glob("check_*.py")]
    paths.remove(ROOT / "hooks" / "check_history.py")  # whose are in test_mistakes
    sources = "".join(path.read_text() for path in paths)
    kinds = set(re.findall(r'(?:Finding\(|found\(\s*template,)\s*"([a-z-]+)"', sources))
    assert kinds == {expected.split()[0] for expected, _ in FAULTS}


@pytest.mark.usefixtures("few_variants")
def test_a_renamed_question_may_ask_for_its_old_answer(tmp_path: Path) -> None:
    files = dict(SOUND)
    questions("default: red", "default: \"{{ color if color is defined else 'red' }}\"")(files)
    assert lint(build(tmp_path, files)) == []


def test_a_choice_that_other_answers_forbid_is_not_looked_at(tmp_path: Path) -> None:
    files = dict(SOUND)
    questions('validator: ""', "validator: \"{{ 'never' }}\"")(files)
    findings = [finding.id for finding in lint(build(tmp_path, files))]
    assert findings == ["never-rendered"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is not YAML"),
        ("- a\n", "is not a mapping"),
        ("", "is not a mapping"),
        ("_envops: {undefind: 1}\n", "_envops is not what Jinja takes"),
    ],
)
def test_questions_that_cannot_be_read_are_one_error(
    text: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(TemplateError, match=reason):
        lint(build(tmp_path, {**SOUND, "copier.yml": text}))


def test_every_allowed_setting_and_key_is_one_that_copier_reads() -> None:
    source = inspect.getsource(copier._template)
    assert [name for name in check_questions.SETTINGS if f'"{name[1:]}"' not in source] == []
    assert set(inspect.signature(copier._user_data.Question).parameters) > check_questions.KEYS
