"""The checks of `python -m hooks check`: this template passes them, and each one can fail."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import copier._template
import copier._user_data
import pytest

from hooks import check as checks
from hooks.check import check
from hooks.template import TemplateError
from hooks.variants import VARIANTS
from tests.conftest import Rendered
from tests.installed import this_template

PROJECT = "template/project"
SOUND = {
    "copier.yml": """\
_min_copier_version: "9.17.0"
_subdirectory: template/project
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
    "template/shared/part.jinja": "Called {{ project_name }}\n",
    "template/shared/text.jinja": '{% include "template/shared/part.jinja" %}\n',
    f"{PROJECT}/{{{{ _copier_conf.answers_file }}}}.jinja": "{{ _copier_answers | to_nice_yaml }}",
    f"{PROJECT}/README.md.jinja": '{% include "template/shared/text.jinja" %}\n',
    f"{PROJECT}/src/my_agent/agent.py": "print('agent')\n",
    f"{PROJECT}/{{{{ red }}}}/src/my_agent/main.py": "print('red')\n",
    f"{PROJECT}/{{{{ blue }}}}/src/my_agent/main.py": "print('blue')\n",
}

Files = dict[str, str]
Edit = Callable[[Files], object]


def keep_variants(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Render only these variants: the small template has the questions of none.

    The last to go is the first to come back: afterwards the table has its old order.
    """
    kept = {name: answers for name, answers in VARIANTS.items() if name in names}
    for variant in reversed(list(VARIANTS)):
        monkeypatch.delitem(VARIANTS, variant)
    for variant, answers in kept.items():
        monkeypatch.setitem(VARIANTS, variant, answers)


@pytest.fixture(autouse=True)
def few_variants(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "variant" not in request.fixturenames:
        keep_variants(monkeypatch, "strands-python")


def build(root: Path, files: Files) -> Path:
    """Write a template."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def questions(old: str, new: str) -> Edit:
    """An edit of copier.yml, which must hold what it replaces."""

    def edit(files: Files) -> None:
        assert old in files["copier.yml"]
        files["copier.yml"] = files["copier.yml"].replace(old, new, 1)

    return edit


def setting(text: str) -> Edit:
    return lambda files: files.update({"copier.yml": f"{text}\n{files['copier.yml']}"})


def add(path: str, content: str = "x = 1\n") -> Edit:
    return lambda files: files.update({f"{PROJECT}/{path}": content})


def remove(path: str) -> Edit:
    return lambda files: files.pop(f"{PROJECT}/{path}")


REFUSED = "refused-default copier.yml"
UNDEFINED = "undefined-name"
FAULTS: list[tuple[str, Edit]] = [
    ("unknown-key copier.yml _taks is unknown: use one of _envops", setting("_taks: []")),
    ("unsafe-feature copier.yml _tasks makes Copier refuse", setting("_tasks: [date]")),
    ("unsafe-feature copier.yml _migrations makes Copier", setting("_migrations: []")),
    ("unsafe-feature copier.yml _jinja_extensions", setting("_jinja_extensions: [a.B]")),
    ("unsafe-feature copier.yml _skip_if_exists", setting("_skip_if_exists: [a]")),
    ("unsafe-feature copier.yml _secret_questions", setting("_secret_questions: [a]")),
    (
        "unsafe-feature copier.yml project_name.secret is not recorded",
        questions("help: What", "secret: true #"),
    ),
    (
        "unknown-key copier.yml project_name.defualt is unknown",
        questions("default:", "defualt:"),
    ),
    (
        "missing-default copier.yml project_name has no default",
        questions("  default: my-agent\n", ""),
    ),
    (
        f"{REFUSED} project_name.default 'agent' is refused by its own question: Call it my-agent",
        questions("default: my-agent", "default: agent"),
    ),
    (
        f"{REFUSED} colour.default 'green' is refused by its own question: it is not among",
        questions("default: red", "default: green"),
    ),
    (
        f"{REFUSED} colour.default 'blue' is refused",
        questions('validator: ""}}\n  default: red', 'validator: "no"}}\n  default: blue'),
    ),
    (
        f"{UNDEFINED} copier.yml red.default uses color, which no earlier question",
        questions("colour == 'red'", "color == 'red'"),
    ),
    (
        f"{UNDEFINED} copier.yml project_name.default uses colour, which no earlier question",
        questions("default: my-agent", 'default: "{{ colour }}"'),
    ),
    (
        f"{UNDEFINED} copier.yml _message_after_copy uses projct",
        setting("_message_after_copy: '{{ projct }}'"),
    ),
    (
        f"{UNDEFINED} {PROJECT}/a.md.jinja:2 uses projct_name",
        add("a.md.jinja", "{{ project_name }}\n{{ projct_name }}\n"),
    ),
    (f"{UNDEFINED} {PROJECT}/{{{{ rde }}}}/x.py its name uses rde", add("{{ rde }}/x.py")),
    (
        f"{UNDEFINED} template/shared/part.jinja:1 uses nme",
        lambda files: files.update({"template/shared/part.jinja": "{{ nme }}"}),
    ),
    (
        "jinja-syntax copier.yml project_name.validator does not compile",
        questions("{% endif %}", "{% endfi %}"),
    ),
    (
        f"jinja-syntax {PROJECT}/a.md.jinja:2 does not compile",
        add("a.md.jinja", "a\n{{ project_name ! }}\n"),
    ),
    (
        f"answers-file {PROJECT}/{{{{ _copier_conf.answers_file }}}}.jinja is missing",
        remove("{{ _copier_conf.answers_file }}.jinja"),
    ),
    (f"name {PROJECT}/a?.py has a name that Windows", add("a?.py")),
    (f'name {PROJECT}/a"b/x.py has a name', add('a"b/x.py')),
    (f"name {PROJECT}/a .jinja has a name", add("a .jinja", "{{ colour }}")),
    (
        f"layer-overlap {PROJECT}/{{{{ red }}}}/src/my_agent/main.py"
        " goes to src/my_agent/main.py, like templ",
        add("src/my_agent/main.py"),
    ),
    (f"layer-overlap {PROJECT}/readme.md goes to readme.md, like", add("readme.md")),
    (
        f"never-rendered {PROJECT}/{{{{ blue }}}}/src/my_agent/main.py"
        " is neither rendered nor included",
        questions("colour == 'blue'", "colour == 'bleu'"),
    ),
    (
        "never-rendered template/shared/text.jinja is neither",
        add("README.md.jinja", "{{ project_name }}"),
    ),
    (
        "never-rendered template/shared/part.jinja is neither",
        add("README.md.jinja", "{{ project_name }}"),
    ),
    (
        "render-failed strands-python TemplateNotFound: ",
        add("a.md.jinja", '{% include "template/shared/other.jinja" %}\n'),
    ),
    ("render-failed strands-python ZeroDivisionError", add("a.jinja", "{{ colour | int / 0 }}")),
    (
        "size-columns a.md:2 has 101 columns; at most 100 are allowed",
        add("a.md", "a\n" + "a" * 101),
    ),
]


@pytest.mark.parametrize(
    "one",
    [
        checks.check_keys,
        checks.check_jinja,
        checks.check_names,
        pytest.param(checks.check_defaults, marks=pytest.mark.slow),
        checks.check_answers_file,
        checks.check_layers,
    ],
)
def test_this_template_passes_every_check_of_its_source(one: checks.Check) -> None:
    assert [str(finding) for finding in one(this_template())] == []


@pytest.mark.parametrize(
    "variant",
    [name if "+" not in name else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS],
)
def test_no_rendered_line_is_too_wide(variant: str, rendered: Rendered) -> None:
    findings = checks.check_columns(rendered(variant))
    assert [str(finding) for finding in findings] == []


def test_a_misspelt_answer_in_this_template_is_an_error_and_blocks_leave_no_blank_lines() -> None:
    settings = this_template().settings
    assert settings["_envops"]["undefined"] == "jinja2.StrictUndefined"
    assert settings["_envops"]["trim_blocks"]
    assert settings["_envops"]["lstrip_blocks"]
    # Setting a subdirectory empties Copier's own list.
    assert "__pycache__" in settings["_exclude"]


def test_a_sound_template_passes_every_check(tmp_path: Path) -> None:
    assert check(build(tmp_path, SOUND)) == []


@pytest.mark.parametrize(("expected", "edit"), FAULTS, ids=[expected for expected, _ in FAULTS])
def test_a_fault_is_found_where_it_is(expected: str, edit: Edit, tmp_path: Path) -> None:
    files = dict(SOUND)
    edit(files)
    findings = [str(finding) for finding in check(build(tmp_path, files))]
    assert any(finding.startswith(expected) for finding in findings), findings


def test_every_kind_of_finding_has_a_fault_above() -> None:
    kinds = set(re.findall(r'Finding\("([a-z-]+)"', Path(checks.__file__).read_text()))
    assert kinds == {expected.split()[0] for expected, _ in FAULTS}


def test_a_renamed_question_may_ask_for_its_old_answer(tmp_path: Path) -> None:
    files = dict(SOUND)
    questions("default: red", "default: \"{{ color if color is defined else 'red' }}\"")(files)
    assert check(build(tmp_path, files)) == []


def test_a_choice_that_other_answers_forbid_is_not_looked_at(tmp_path: Path) -> None:
    files = dict(SOUND)
    questions('validator: ""', "validator: \"{{ 'never' }}\"")(files)
    findings = [finding.id for finding in check(build(tmp_path, files))]
    assert findings == ["never-rendered"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is not YAML"),
        ("- a\n", "is not a mapping"),
        ("", "is not a mapping"),
        ("a: {type: str}\n", "has no _subdirectory"),
        ("_subdirectory: template\nmodel: bedrock\n", "model is not a mapping"),
        ("_subdirectory: template\n_envops: {undefind: 1}\n", "Jinja rejects _envops"),
    ],
)
def test_questions_that_cannot_be_read_are_one_error(
    text: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(TemplateError, match=reason):
        check(build(tmp_path, {**SOUND, "copier.yml": text}))


def test_every_allowed_setting_and_key_is_one_that_copier_reads() -> None:
    source = inspect.getsource(copier._template)
    assert [name for name in checks.SETTINGS if f'"{name[1:]}"' not in source] == []
    assert set(inspect.signature(copier._user_data.Question).parameters) > checks.KEYS
