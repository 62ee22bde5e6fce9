"""Hooks of mkdocs for the documents' site (scripts/build-docs).

The pages of docs/ are also read on a code host, so nothing in them is made for the site. The hooks

  * add pages from outside docs/ (README.md becomes the first page) and the reference of the API;
  * point links at these pages. A link to any other file of the repository leads to a copy of it below source/, so a
    version of the site is complete and shows the files of its version;
  * write llms.txt (llmstxt.org) from the navigation, next to the Markdown of each page;
  * let the theme load mermaid from the site instead of another host.
"""
import gzip
import html
import json
import os
import pathlib
import posixpath
import re
import subprocess

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODE = pathlib.Path(os.environ["DOCS_NODE_MODULES"])
# Pages from outside docs/: file of the repository, page of the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "clients/README.md": "clients.md",
    "examples/README.md": "examples.md",
    "crates/queue/README.md": "queue.md",
    "jobs/README.md": "jobs.md",
    "migrations/README.md": "migrations.md",
}
# Pages whose navigation entry is followed by the pages that they link to, in this order.
INDEXES = {"clients.md": "clients/README.md", "design/README.md": "docs/design/README.md", "requirements/README.md": "docs/requirements/README.md"}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^```.*?^```[ ]*$)", re.M | re.S)
# The theme's address of mermaid, and that of the copy in the site. The theme defines __md_scope, the root of the version.
MERMAID_ELSEWHERE = re.compile(r'"https://unpkg\.com/mermaid@11/dist/mermaid\.min\.js"')
MERMAID_HERE = 'new URL("assets/mermaid.min.js",__md_scope).href'

tracked = set()


def slugify(text, separator):
    """Names the anchor of a heading as code hosts do."""
    kept = (c for c in text.strip().lower().replace(" ", separator) if c.isalnum() or c in "-_")
    return "".join(kept)


def page_of(path):
    """Returns the page of the site for a file of the repository, if it has one."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def origin_of(page):
    """Returns the file of the repository from which a page is made."""
    return next((path for path, name in PAGES.items() if name == page), f"docs/{page}")


def rewrite_links(text, origin, wanted):
    """Points the links of a page of the repository at the site. Adds copied files to `wanted`."""
    page = page_of(origin)

    def rewrite(match):
        target, mark, anchor = match[2].partition("#")
        if not target or re.match(r"[a-z]+:|/", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        site = page_of(path)
        if site is None:
            if path not in tracked:
                raise PluginError(f"{origin} links to {target}, which is not a file of the repository")
            wanted.add(path)
            site = f"source/{path}.txt"
            mark = anchor = ""
        return match[1] + posixpath.relpath(site, posixpath.dirname(page) or ".") + mark + anchor + match[3]

    parts = FENCE.split(text)
    return "".join(part if n % 2 else LINK.sub(rewrite, part) for n, part in enumerate(parts))


def unescape_pipes(text):
    """Removes the backslash that code hosts require before a pipe inside code of a table."""
    def row(line):
        return re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line

    return "\n".join(row(line) for line in text.split("\n"))


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def on_config(config):
    config.site_url += "latest/"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked.update(path for path in listed.split("\0") if path)
    for path in tracked:
        client = re.fullmatch(r"(clients/\w+)/README\.md", path)
        if client:
            PAGES[path] = f"{client[1]}.md"
    for section in config.nav:
        for entry in next(iter(section.values())):
            pages = next(iter(entry.values())) if isinstance(entry, dict) else entry
            if isinstance(pages, list):
                pages.extend(linked_pages(INDEXES[pages[0]]))
    return config


def linked_pages(index):
    """Returns the pages that an index links to and that are below it, in order."""
    folder = posixpath.dirname(index)
    links = re.findall(r"\]\(((?!\.\.)[\w./-]+\.md)\)", read(index))
    return list(dict.fromkeys(page_of(posixpath.join(folder, link)) for link in links))


def operations(document):
    """Yields tag, method, path and operation of the API."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and "operationId" in operation:
                yield operation.get("tags", ["Other"])[0], method, path, operation


def api_page(document):
    text = ["# API", "", f"The operations of version {document['info']['version']} of the HTTP API, with links to its [reference](reference.html).",
            "`serve` sends the document at `/openapi.json`; [openapi.json](openapi.json) is a copy.", ""]
    tags = {}
    for tag, method, path, operation in operations(document):
        tags.setdefault(tag, []).append((method, path, operation))
    for tag, rows in tags.items():
        text += [f"## {tag}", "", "| operation | request | |", "|---|---|---|"]
        for method, path, operation in rows:
            name = operation["operationId"]
            link = f"[`{name}`](reference.html#/{tag.replace(' ', '%20')}/{name})"
            text.append(f"| {link} | `{method.upper()} {path}` | {operation.get('summary', '').replace('|', '&#124;')} |")
        text.append("")
    return "\n".join(text)


def reference(document):
    """Returns one page with the viewer, its styles and the document, which loads nothing."""
    viewer = NODE / "swagger-ui-dist"
    script = (viewer / "swagger-ui-bundle.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    style = (viewer / "swagger-ui.css").read_text(encoding="utf-8")
    data = json.dumps(document).replace("<", "\\u003c")
    title = html.escape(f"{document['info']['title']} API {document['info']['version']}")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><link rel="icon" href="data:,"><style>{style}</style></head>
<body><div id="reference"></div><script>{script}</script>
<script>SwaggerUIBundle({{spec:{data},dom_id:"#reference",deepLinking:true,validatorUrl:null,supportedSubmitMethods:[],docExpansion:"none",
defaultModelsExpandDepth:0,filter:true}});</script></body></html>
"""


def on_files(files, config):
    # tests/baseline compares the recorded document with that of the binary.
    document = json.loads(gzip.decompress((ROOT / "tests/baseline/recordings/openapi.json.gz").read_bytes()))
    generated = {page: read(path) for path, page in PAGES.items()}
    generated["api.md"] = api_page(document)
    generated["openapi.json"] = json.dumps(document, indent=1)
    generated["reference.html"] = reference(document)
    generated["assets/site.css"] = read("scripts/docs/site.css")
    generated["assets/mermaid.min.js"] = (NODE / "@mermaid-js/tiny/dist/mermaid.tiny.js").read_text(encoding="utf-8")
    wanted = set()
    for file in files.documentation_pages():
        rewrite_links(file.content_string, f"docs/{file.src_uri}", wanted)
    for path in PAGES:
        rewrite_links(read(path), path, wanted)
    for path in wanted:
        generated[f"source/{path}.txt"] = read(path)
    for page, text in generated.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    text = markdown if uri == "api.md" else rewrite_links(markdown, origin_of(uri), set())
    page.meta["llms"] = text
    return unescape_pipes(text)


def summary(text):
    """Returns the first sentences of a page's first paragraph, without links: enough to choose the page by."""
    for block in FENCE.sub("", text).split("\n\n"):
        if not re.match(r"[\w`*\"\[(]", block.strip()):
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())).replace("**", "")
        chosen = ""
        for sentence in re.split(r"(?<=\.)\s+", plain):
            # A note for people who edit the page.
            if sentence.startswith("Generated from "):
                continue
            chosen = f"{chosen} {sentence}".strip()
            if len(chosen) >= 60:
                break
        if chosen:
            return chosen.rstrip(":.") + "."
    return ""


def on_nav(nav, config, files):
    config.extra["llms_nav"] = nav
    return nav


def pages_below(item):
    if item.is_page:
        return [item]
    return [page for child in item.children or [] for page in pages_below(child)]


def on_post_build(config):
    site = pathlib.Path(config.site_dir)
    text = [f"# {config.site_name}", "", f"> {config.site_description}.", ""]
    for item in config.extra["llms_nav"].items:
        text += [f"## {item.title}", ""]
        for page in pages_below(item):
            markdown = page.meta["llms"]
            description = summary(markdown)
            if len(description) < 30:
                raise PluginError(f"{page.file.src_uri} has no first paragraph that describes it: llms.txt needs one")
            text.append(f"- [{page.title}]({config.site_url}{page.file.src_uri}): {description}")
            copy = site / page.file.src_uri
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(markdown, encoding="utf-8")
        text.append("")
    (site / "llms.txt").write_text("\n".join(text), encoding="utf-8")

    bundles = list((site / "assets/javascripts").glob("bundle.*.min.js"))
    replaced = 0
    for bundle in bundles:
        code, count = MERMAID_ELSEWHERE.subn(lambda _: MERMAID_HERE, bundle.read_text(encoding="utf-8"))
        bundle.write_text(code, encoding="utf-8")
        replaced += count
    if (len(bundles), replaced) != (1, 1):
        raise PluginError("the theme loads mermaid in a way that this hook does not know: correct MERMAID_ELSEWHERE")
