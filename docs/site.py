"""The pages of the site that `make docs` builds: those of the repository as they are, and one per
public module.

A module is public if it has `__all__`, whose order is that of its page. The docstrings are read
from the sources, so that nothing is imported.
"""

import ast
import importlib.util
from itertools import chain
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "constraints.txt",
    "docs/*.md",
    "docs/site.css",
    "docs/images/*",
    "docs/results/*",
    "examples/*",
    "examples/awd_lstm/README.md",
    "configs/**/*",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages under their paths in the repository, so that the links between them need no
    change."""
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    for path in filter(Path.is_file, chain.from_iterable(map(ROOT.glob, PAGES))):
        uri = path.relative_to(ROOT).as_posix()
        files.append(File(uri, str(ROOT), config.site_dir, config.use_directory_urls))
    for path in (ROOT / "agg_fairseq").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if text := page(module, ast.parse(path.read_text(encoding="utf-8"))):
            files.append(File.generated(config, f"api/{module.partition('.')[2]}.md", content=text))
    return files


def page(module: str, tree: ast.Module) -> str | None:
    """The page of a module, None if it has no `__all__`: its docstring, and each name from the
    module that defines it.

    The docstring of that module, which often has the formulas, stands before the first of its
    names.
    """
    source_of, names = {}, []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), module)
            source_of |= {alias.name: source for alias in node.names}
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
    blocks, seen = [f"# {module}", docstring(module)], {module}
    for name in names:
        source = source_of.get(name, module)
        if source not in seen:
            blocks += ["---", docstring(source)]
            seen.add(source)
        blocks.append(f"::: {source}.{name}")
    return "\n\n".join(blocks) if names else None


def docstring(module: str) -> str:
    """A block that shows the docstring of a module alone."""
    return f"::: {module}\n    options: {{members: false, show_root_heading: false, show_root_toc_entry: false}}"


class FieldComments(griffe.Extension):
    """The comment at the end of the line of a field is its docstring."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **options: Any) -> None:
        """Of a NamedTuple or a dataclass."""
        comment = attr.source.partition("  # ")[2]
        if comment and not attr.docstring and not comment.startswith(("noqa", "type:")):
            attr.docstring = griffe.Docstring(comment, parent=attr)
