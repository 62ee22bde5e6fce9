"""Checks the links of the documents' site without a network: check_links.py SITE. SITE is the folder of one version.

  * Each link to a file of the site leads to a file, and each anchor to an element of that page.
  * No page, style or frame loads anything from another host.
  * Each address of llms.txt and each runbook_url of the alert rules is a page of the site.

Prints one line for each fault. Exits with 1 if there is one.
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse

LOADS = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
# Addresses of `link` that browsers do not load.
NOT_LOADED = {"canonical", "next", "prev", "alternate"}
ELSEWHERE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?(?:https?:)?//")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        for name in ("id", "name"):
            if given.get(name):
                self.ids.add(given[name])
        if tag == "a" and given.get("href") is not None:
            self.links.append(given["href"])
        source = given.get(LOADS.get(tag, ""))
        if source and not (tag == "link" and set(given.get("rel", "").split()) <= NOT_LOADED):
            self.loads.append(source)

    handle_startendtag = handle_starttag


def main(folder, rules):
    site = pathlib.Path(folder).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    faults, links, outside = [], 0, set()

    def follow(page, target, where):
        """Checks a link of a page; returns whether it leads to another host."""
        parts = urllib.parse.urlsplit(target)
        if parts.scheme or parts.netloc:
            return parts.scheme not in ("data", "mailto")
        path = urllib.parse.unquote(parts.path)
        found = (page.parent / path).resolve() if path else page
        if found.is_dir():
            found = found / "index.html"
        anchor = urllib.parse.unquote(parts.fragment)
        if not found.is_file() or site not in found.parents:
            faults.append(f"{where}: {target} leads to no file of the site")
        # Fragments that start with a slash belong to the viewer of the API; the browser test opens one.
        elif anchor and not anchor.startswith("/") and anchor != "__top" and found in pages and anchor not in pages[found].ids:
            faults.append(f"{where}: {target} leads to no heading")
        return False

    for path, page in pages.items():
        where = path.relative_to(site)
        for link in page.links:
            links += 1
            if follow(path, link, where):
                outside.add(link)
        for load in page.loads:
            if follow(path, load, where):
                faults.append(f"{where}: loads {load} from another host")
        if ELSEWHERE.search(re.sub(r"<script.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.S)):
            faults.append(f"{where}: a style loads from another host")
    for path in site.rglob("*.css"):
        if ELSEWHERE.search(path.read_text(encoding="utf-8")):
            faults.append(f"{path.relative_to(site)}: loads from another host")

    base = site_address(site)
    named = re.findall(r"\]\((\S+)\):", (site / "llms.txt").read_text(encoding="utf-8"))
    listed = {urllib.parse.urlsplit(address).path for address in named}
    for address in named + re.findall(r"runbook_url: (\S+)", pathlib.Path(rules).read_text(encoding="utf-8")):
        links += 1
        if address.startswith(base):
            follow(site / "index.html", address.removeprefix(base), "llms.txt and alert rules")
        else:
            faults.append(f"{address} is not below {base}")
    if len(listed) < 50 or len(listed) != len(named):
        faults.append(f"llms.txt lists {len(listed)} pages in {len(named)} lines")
    if len(pages) < 50 or links < 1000:
        faults.append(f"only {len(pages)} pages and {links} links were found")

    for fault in faults:
        print(f"FOUND   {fault}")
    print(f"{len(pages)} pages, {links} links, {len(outside)} of them to other hosts, {len(faults)} broken")
    sys.exit(1 if faults else 0)


def site_address(site):
    """Returns the address of the first page, as the site states it."""
    text = (site / "index.html").read_text(encoding="utf-8")
    return re.search(r'<link rel="canonical" href="(.*?)index\.html">', text)[1]


main(*sys.argv[1:])
