"""MkDocs calls this when the site is built: shows whole docstrings on the page of the API, copies
the files of the repository that pages link to, such as results, and reports dead links.
"""

import html
import logging
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_LINK = re.compile(r'(?:href|src)="([^"#?]+)')


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces each section that follows a comment `::: name` by mkdocstrings' page of the name."""
    return re.sub(r"<!-- (::: \S+) -->.*?(?=<!-- :::|\Z)", r"\1\n", markdown, flags=re.DOTALL)


def on_post_build(config: Any, **_: Any) -> None:
    """Copies linked files; with --strict, a dead link ends the build with an error."""
    site, repository = Path(config["site_dir"]), Path(config["docs_dir"]).parent
    dead = set()
    for page in sorted(site.rglob("*.html")):
        for link in _LINK.findall(page.read_text("utf-8")):
            target = unquote(html.unescape(link))
            if re.match(r"[a-z]+:|//|/", target):  # another site, or the error page's own links
                continue
            path = (page.parent / target).resolve()
            if path.exists() or not path.is_relative_to(site.resolve()):
                continue
            source = repository / path.relative_to(site.resolve())
            if source.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, path)
            else:
                dead.add(f"{page.relative_to(site)}: {target}")
    for link in sorted(dead):
        logging.getLogger("mkdocs.plugins.site_links").warning("dead link in %s", link)
