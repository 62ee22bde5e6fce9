//! Pages that are a table: rows with cells, each row with what can be done about it.

use std::fmt::Display;

use askama::Template;

use crate::{
    language::{Words, both, say},
    page::Shell,
    shown::escape,
};

/// HTML of one cell.
pub(crate) struct Cell {
    pub(crate) html: String,
    /// "", "id" or "num".
    pub(crate) class: &'static str,
    /// There is nothing to show: a dash, which phones leave out.
    pub(crate) is_none: bool,
}

impl Cell {
    pub(crate) fn text(text: impl Display) -> Self {
        let text = text.to_string();
        let text = if text.is_empty() { "–".to_owned() } else { text };
        Self { html: escape(&text), class: "", is_none: text == "–" }
    }

    pub(crate) fn id(text: impl Display) -> Self {
        Self { class: "id", ..Self::text(text) }
    }

    pub(crate) fn number(number: impl Display) -> Self {
        Self { class: "num", ..Self::text(number) }
    }

    /// What writes HTML of its own: chips and times.
    pub(crate) fn html(part: impl Display) -> Self {
        Self { html: part.to_string(), class: "", is_none: false }
    }

    pub(crate) fn link(address: &str, text: &str) -> Self {
        Self {
            html: format!("<a class=\"id\" href=\"{}\">{}</a>", escape(address), escape(text)),
            class: "",
            is_none: false,
        }
    }

    /// A bar that says how full something is, with the numbers beside it.
    pub(crate) fn meter(part: i64, whole: i64) -> Self {
        let share = (part.max(0) * 84 / whole.max(1)).min(84);
        let class = if part >= whole { "meter full" } else { "meter" };
        let of = say!("{part} of {whole}", "{part} dari {whole}");
        let html = format!(
            "<svg class=\"{class}\" viewBox=\"0 0 84 9\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"{share}\" height=\"9\"/></svg> {of}"
        );
        Self { html, class: "", is_none: false }
    }
}

/// A field of a form.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) label: Words,
    /// "text", "hidden" or "datetime-local"; with options a choice.
    pub(crate) kind: &'static str,
    pub(crate) value: String,
    pub(crate) required: bool,
    /// Value and label.
    pub(crate) options: Vec<(String, String)>,
}

impl Field {
    pub(crate) fn text(name: &'static str, label: Words, value: &str) -> Self {
        Self { name, label, kind: "text", value: value.to_owned(), required: false, options: Vec::new() }
    }

    /// What the page says and the person does not see.
    pub(crate) fn hidden(name: &'static str, value: &str) -> Self {
        Self { kind: "hidden", ..Self::text(name, both("", ""), value) }
    }

    pub(crate) fn reason() -> Self {
        Self { required: true, ..Self::text("reason", both("Reason", "Alasan"), "") }
    }

    /// A time in UTC.
    pub(crate) fn time(name: &'static str, label: Words, value: &str) -> Self {
        Self { kind: "datetime-local", ..Self::text(name, label, value) }
    }

    pub(crate) fn choice(name: &'static str, label: Words, value: &str, options: &[(&str, &str)]) -> Self {
        let options = options.iter().map(|(value, label)| ((*value).to_owned(), (*label).to_owned())).collect();
        Self { options, ..Self::text(name, label, value) }
    }
}

/// What can be done, with its form.
pub(crate) struct Action {
    pub(crate) label: Words,
    /// Below the console's path.
    pub(crate) path: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) is_danger: bool,
}

impl Action {
    pub(crate) fn new(label: Words, path: String, fields: Vec<Field>) -> Self {
        Self { label, path, fields, is_danger: false }
    }

    pub(crate) fn danger(self) -> Self {
        Self { is_danger: true, ..self }
    }
}

pub(crate) struct TableRow {
    pub(crate) cells: Vec<Cell>,
    pub(crate) actions: Vec<Action>,
    /// The address of what the row is about; empty: it has no page.
    pub(crate) href: String,
}

impl TableRow {
    pub(crate) fn plain(cells: Vec<Cell>) -> Self {
        Self { cells, actions: Vec::new(), href: String::new() }
    }

    pub(crate) fn with_actions(self, actions: Vec<Action>) -> Self {
        Self { actions, ..self }
    }

    /// Enter opens this address.
    pub(crate) fn open(self, href: String) -> Self {
        Self { href, ..self }
    }
}

#[derive(Template)]
#[template(path = "table.html")]
pub(crate) struct TablePage {
    pub(crate) shell: Shell,
    /// Below the console's path, with its query: what refreshes this page.
    pub(crate) here: String,
    pub(crate) note: String,
    /// HTML above the table.
    pub(crate) figure: String,
    pub(crate) filters: Vec<Field>,
    /// What is done to all that is shown.
    pub(crate) actions: Vec<Action>,
    pub(crate) headings: &'static [Words],
    pub(crate) rows: Vec<TableRow>,
    pub(crate) if_empty: (Words, Words),
    /// The query of the next page.
    pub(crate) next: Option<String>,
}

impl TablePage {
    pub(crate) fn new(shell: Shell, here: &str, headings: &'static [Words], rows: Vec<TableRow>) -> Self {
        Self {
            shell,
            here: here.to_owned(),
            note: String::new(),
            figure: String::new(),
            filters: Vec::new(),
            actions: Vec::new(),
            headings,
            rows,
            if_empty: (
                both("Nothing here", "Belum ada apa-apa"),
                both("What comes appears here by itself.", "Yang datang muncul di sini dengan sendirinya."),
            ),
            next: None,
        }
    }

    fn path(&self) -> &str {
        self.here.split('?').next().unwrap_or_default()
    }

    fn has_actions(&self) -> bool {
        self.rows.iter().any(|row| !row.actions.is_empty())
    }
}
