"""What a busy machine does: modules that take longer to load than a call of theirs may take."""

import json
from pathlib import Path

PYTHON = """
import re, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if re.fullmatch({pattern!r}, name):
            time.sleep(4)

sys.meta_path.insert(0, Slow())
"""
NODE = """
import {{ registerHooks }} from 'node:module'

const slow = {patterns}.map((one) => new RegExp(one))
registerHooks({{
  load(url, context, next) {{
    const at = slow.findIndex((one) => one.test(url))
    if (at >= 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4000)
    if (at >= 0) slow.splice(at, 1)
    return next(url, context)
  }},
}})
"""


def slow_modules(folder: Path, python: str, *node: str) -> dict[str, str]:
    """The variables of a process in which these modules take four seconds to load.

    `python` is a pattern for their names; for each of the patterns in `node` it is the first
    module whose address it fits. `folder` gets the two files that do it.
    """
    (folder / "sitecustomize.py").write_text(PYTHON.format(pattern=python))
    (folder / "slow.mjs").write_text(NODE.format(patterns=json.dumps(node)))
    return {"PYTHONPATH": str(folder), "NODE_OPTIONS": f"--import={folder / 'slow.mjs'}"}
