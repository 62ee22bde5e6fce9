//! Parses a console page: links of its menu and rows, and refresh settings. Pure.

/// A link of the menu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MenuLink {
    pub(super) label: String,
    pub(super) path: String,
}

/// Returns the links of the menu in order.
pub(super) fn menu_links(html: &str) -> Vec<MenuLink> {
    let menu = html.split_once("<nav class=\"menu").and_then(|(_, rest)| rest.split_once("</nav>"));
    let links = menu.map_or("", |(menu, _)| menu).split("<a href=\"").skip(1);
    links
        .filter_map(|link| {
            let (path, rest) = link.split_once('"')?;
            let label = rest.split_once('>')?.1.split_once("</a>")?.0;
            Some(MenuLink { label: unescape(label), path: unescape(path) })
        })
        .collect()
}

/// Returns the value of the first attribute with this name. Empty if there is none.
pub(super) fn attribute(html: &str, name: &str) -> String {
    let value = html.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
    unescape(value.map_or("", |(value, _)| value))
}

/// Returns the addresses that rows and ids of a page lead to, in order.
pub(super) fn row_links(html: &str) -> Vec<String> {
    let links = html.split_once("<main").map_or(html, |(_, main)| main).split([' ', '\n']);
    let addresses = links.filter_map(|part| part.strip_prefix("data-href=\"").or_else(|| part.strip_prefix("href=\"")));
    addresses.filter_map(|rest| Some(unescape(rest.split_once('"')?.0))).collect()
}

/// Unescapes the entities that pages use in addresses and labels.
fn unescape(text: &str) -> String {
    text.replace("&#38;", "&").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<body data-refresh="10" data-changes="/console/changes?of=orders" data-now="x">
        <a class="mark" href="/console">dispatchq</a>
        <nav class="menu stack" aria-label="Pages"><div><h2>Watch</h2><ul>
        <li><a href="/console" aria-current="page">Now</a></li>
        <li><a href="/console/dead?a=1&#38;b=2">Dead letters</a></li></ul></div></nav>
        <table><tr data-href="/console/orders/O-1"><td><a href="/console/orders/O-1">O-1</a></td></tr>
        <tr data-href="/console/orders/O-2"></tr></table>"#;

    #[test]
    fn markup_reader_finds_links_and_refresh() {
        let links = menu_links(PAGE);
        let link = |label: &str, path: &str| MenuLink { label: label.to_owned(), path: path.to_owned() };
        assert_eq!(links, [link("Now", "/console"), link("Dead letters", "/console/dead?a=1&b=2")]);
        assert_eq!(attribute(PAGE, "data-refresh"), "10");
        assert_eq!(attribute(PAGE, "data-changes"), "/console/changes?of=orders");
        assert_eq!(attribute(PAGE, "data-href"), "/console/orders/O-1");
        assert_eq!(attribute(PAGE, "data-waiting"), "");
        assert_eq!(menu_links("<p>no menu</p>"), []);
    }
}
