"""Hooks of the MkDocs build: navigation, generated pages, and the output of examples.

| step of the build | what happens |
|---|---|
| `on_config` | entries of the navigation that end in ``/`` become the pages of that folder |
| `on_files` | generated pages are added (`reference.py`, `experiment_pages.py`, `notebooks.py`), and all examples run |
| `on_page_markdown` | the output of each example is put below it; ``<!-- generated: NAME -->`` becomes that part |
| `on_page_markdown` | ``{{module.NAME}}`` becomes the value of that constant (`detectors.py`) |
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import detector_pages
import experiment_pages
import notebooks
import page_examples
import reference

LONGEST = 60
"""Lines of an output that are shown; of a longer one, the middle is left out."""
WORKERS = 2

_GENERATED = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.M)
_NOTES = re.compile(r"^<!-- (?:output|run): \w+ -->\n", re.M)
_PICTURE = re.compile(r'(\]\(|src=")([\w-]+\.(?:svg|png|html))(?=[)"])')

_pages = {**reference.PAGES, **experiment_pages.pages()}
"""Functions that make the generated pages, by path."""
_outputs: dict[str, list[list[dict[str, Any]]]] = {}
_made: dict[str, dict[str, str]] = {}
"""For each page, the files that its examples wrote, by name, as links from the page."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    config.nav = [_expanded(entry, docs) for entry in config.nav or []]
    return config


def _expanded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(value, docs) for title, value in entry.items()}
    if isinstance(entry, list):
        return [one for value in entry for one in _listed(_expanded(value, docs))]
    if isinstance(entry, str) and entry.endswith("/"):
        generated = [name for name in (*_pages, *_notebooks()) if name.startswith(entry)]
        written = sorted(str(path.relative_to(docs)) for path in (docs / entry).glob("*.md"))
        return sorted({*generated, *written}, key=lambda name: (not name.endswith("index.md"), _rank(name)))
    return entry


def _notebooks() -> dict[str, Path]:
    """Return the notebook of each page of `notebooks/`."""
    return {f"notebooks/{path.stem}.md": path for path in notebooks.paths()}


def _rank(name: str) -> tuple[int, str]:
    """Generated pages keep the order in which they are defined."""
    return (list(_pages).index(name) if name in _pages else -1, name)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, make in (_pages | experiment_pages.pictures()).items():
        files.append(File.generated(config, name, content=make()))
    written = [file for file in files.documentation_pages() if file.src_uri not in _pages]
    pages = {file.src_uri: file.content_string for file in written}
    with ThreadPoolExecutor(WORKERS) as pool:
        running = {
            name: pool.submit(page_examples.run, name, text)
            for name, text in pages.items()
            if page_examples.examples(text)
        }
        executing = {name: pool.submit(notebooks.page, path, _fenced) for name, path in _notebooks().items()}
        for name, result in running.items():
            try:
                _outputs[name], folder = result.result()
            except page_examples.ExampleError as error:
                raise PluginError(str(error)) from None
            _made[name] = _add_files(files, config, name, pages[name], folder)
        for name, page in executing.items():
            try:
                text, shown = page.result()
            except page_examples.ExampleError as error:
                raise PluginError(str(error)) from None
            path = _notebooks()[name]
            shown = {name: text, f"notebooks/{path.name}": path.read_text()} | {
                f"notebooks/{file}": content for file, content in shown.items()
            }
            for file, content in shown.items():
                files.append(File.generated(config, file, content=content))
    return files


def _add_files(files: Files, config: MkDocsConfig, name: str, text: str, folder: Path) -> dict[str, str]:
    """Add to the site the files that a page shows. Return their links, relative to the page."""
    page = Path(name).with_suffix("")
    pictures = {one["picture"] for outputs in _outputs[name] for one in outputs if "picture" in one}
    links: dict[str, str] = {}
    for file in sorted({*pictures, *(match[2] for match in _PICTURE.finditer(text))}):
        if (folder / file).is_file():
            files.append(File.generated(config, str(page / file), abs_src_path=str(folder / file)))
            links[file] = f"{page.name}/{file}"
    return links


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    name = page.file.src_uri
    links = _made.get(name, {})
    parts: list[str] = []
    at = 0
    for example, outputs in zip(page_examples.examples(markdown), _outputs.get(name, []), strict=False):
        parts.append(markdown[at : example.end])
        if not example.hidden:
            parts += [f"\n\n{_formatted(one, links)}\n" for one in outputs]
        at = example.end
    text = "".join([*parts, markdown[at:]])
    text = _PICTURE.sub(lambda match: match[1] + _link(match, links, page), detector_pages.constants(text))
    return _GENERATED.sub(lambda match: reference.part(match[1]), _NOTES.sub("", text))


def _link(match: re.Match[str], links: dict[str, str], page: Page) -> str:
    """Return the link to a file of an example. MkDocs rewrites links of Markdown, but not those of HTML."""
    if match[2] not in links:
        return match[2]
    return links[match[2]] if match[1] == "](" else match[2]


def _formatted(output: dict[str, Any], links: dict[str, str]) -> str:
    if "picture" in output:
        return f"![Output of the example]({links[output['picture']]})"
    if "html" in output:
        return f'<div class="output">{output["html"]}</div>'
    return _fenced(output["text"])


def _fenced(text: str) -> str:
    """Return an output as a block of text, without the middle if it is long."""
    lines = text.rstrip().splitlines()
    if len(lines) > LONGEST:
        half = LONGEST // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]]
    fence = "````" if any(line.startswith("```") for line in lines) else "```"
    return "\n".join([f"{fence} {{ .text .output }}", *lines, fence])
