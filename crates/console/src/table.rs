//! Pages that are a table: rows of cells, each row with its actions.

use std::{fmt::Display, sync::Arc};

use askama::Template;

use crate::{
    catalogue::{Words, fill, tr},
    outside_link::OutsideLink,
    page::Shell,
    refusal::{self, Refusal},
    shown::escape,
};

/// HTML of one cell.
pub(crate) struct Cell {
    pub(crate) html: String,
    /// "", "id" or "num".
    pub(crate) class: &'static str,
    /// Whether the cell has no value. It shows a dash, which narrow screens omit.
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

    /// Returns a cell with HTML, such as a chip or a time.
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

    /// Adds a link to another system.
    pub(crate) fn and_link(self, link: Option<OutsideLink>) -> Self {
        match link {
            Some(link) => Self { html: format!("{} {link}", self.html), is_none: false, ..self },
            None => self,
        }
    }

    /// Returns the cell with the link, or the link alone.
    pub(crate) fn with_link(cell: Option<Self>, link: Option<OutsideLink>) -> Option<Self> {
        match cell {
            Some(cell) => Some(cell.and_link(link)),
            None => link.map(Self::html),
        }
    }

    /// Returns a cell with a bar for the load, followed by the numbers.
    pub(crate) fn meter(part: i64, whole: i64) -> Self {
        let share = (part.max(0) * 84 / whole.max(1)).min(84);
        let class = if part >= whole { "meter full" } else { "meter" };
        let of = fill!("table.of", part, whole);
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
    /// "text", "hidden" or "datetime-local". A field with options is a choice.
    pub(crate) kind: &'static str,
    pub(crate) value: String,
    pub(crate) required: bool,
    /// Value and label of each choice.
    pub(crate) options: Vec<(String, String)>,
    /// Values that the browser suggests, each with its description.
    pub(crate) suggestions: Vec<(String, String)>,
}

impl Field {
    pub(crate) fn text(name: &'static str, label: Words, value: &str) -> Self {
        let (options, suggestions) = (Vec::new(), Vec::new());
        Self { name, label, kind: "text", value: value.to_owned(), required: false, options, suggestions }
    }

    /// Returns a field that the page fills in and the person does not see.
    pub(crate) fn hidden(name: &'static str, value: &str) -> Self {
        Self { kind: "hidden", ..Self::text(name, Words::NONE, value) }
    }

    pub(crate) fn reason() -> Self {
        Self::required("reason", tr("common.reason"))
    }

    /// Returns a text field that the browser requires.
    pub(crate) fn required(name: &'static str, label: Words) -> Self {
        Self { required: true, ..Self::text(name, label, "") }
    }

    /// Returns a field for a time in UTC.
    pub(crate) fn time(name: &'static str, label: Words, value: &str) -> Self {
        Self { kind: "datetime-local", ..Self::text(name, label, value) }
    }

    pub(crate) fn choice(name: &'static str, label: Words, value: &str, options: &[(&str, &str)]) -> Self {
        let options = options.iter().map(|(value, label)| ((*value).to_owned(), (*label).to_owned())).collect();
        Self { options, ..Self::text(name, label, value) }
    }

    /// Returns the value of a filter of the page at this path. If the filter was refused, it is the refused value.
    fn filter_value(&self, path: &str) -> String {
        refusal::refused_filter(path, self.name).unwrap_or_else(|| self.value.clone())
    }
}

/// An action with its form.
pub(crate) struct Action {
    /// Label that opens the form.
    pub(crate) label: String,
    /// Label of the button.
    pub(crate) button: String,
    /// Path below the console's path.
    pub(crate) path: String,
    /// Information for the person before the action.
    pub(crate) hint: Option<String>,
    pub(crate) fields: Vec<Field>,
    /// Other buttons of the form, each with its path.
    pub(crate) others: Vec<(Words, String)>,
    pub(crate) is_danger: bool,
}

impl Action {
    pub(crate) fn new(label: impl Into<String>, path: String, fields: Vec<Field>) -> Self {
        let label = label.into();
        Self { button: label.clone(), label, path, hint: None, fields, others: Vec::new(), is_danger: false }
    }

    /// Makes the button red. The browser requires a confirmation before it sends the form.
    pub(crate) fn danger(self) -> Self {
        Self { is_danger: true, ..self }
    }

    /// Sets another label for the button.
    pub(crate) fn button(self, words: Words) -> Self {
        Self { button: words.into(), ..self }
    }

    pub(crate) fn hint(self, text: impl Into<String>) -> Self {
        Self { hint: Some(text.into()), ..self }
    }

    /// Adds another button, which sends the same fields to another path.
    pub(crate) fn or(mut self, words: Words, path: String) -> Self {
        self.others.push((words, path));
        self
    }

    /// Returns the state of the form: unchanged, or refused with the sent values. `base` is the console's path.
    pub(crate) fn state(&self, base: &str) -> FormState {
        let is_ours = |refused: &Refusal| {
            let paths = self.others.iter().map(|(_, path)| path).chain([&self.path]);
            let is_sent_here = paths.into_iter().any(|path| refused.action.strip_prefix(base) == Some(path.as_str()));
            // Forms with the same path differ in their hidden fields, except for `version`, which becomes outdated.
            let mut hidden = self.fields.iter().filter(|field| field.kind == "hidden" && field.name != "version");
            is_sent_here && hidden.all(|field| refused.value(field.name).unwrap_or_default() == field.value)
        };
        FormState(refusal::claim_refusal(is_ours))
    }
}

/// The refusal that a form shows, if there is one.
pub(crate) struct FormState(Option<Arc<Refusal>>);

impl FormState {
    pub(crate) fn refused(&self) -> Option<&Refusal> {
        self.0.as_deref()
    }

    /// Returns the sent value, or else the value of the page.
    pub(crate) fn value<'a>(&'a self, field: &'a Field) -> &'a str {
        self.refused().and_then(|refused| refused.value(field.name)).unwrap_or(&field.value)
    }
}

pub(crate) struct TableRow {
    pub(crate) cells: Vec<Cell>,
    pub(crate) actions: Vec<Action>,
    /// Address of the row's own page; empty if it has none.
    pub(crate) href: String,
}

impl TableRow {
    pub(crate) fn plain(cells: Vec<Cell>) -> Self {
        Self { cells, actions: Vec::new(), href: String::new() }
    }

    pub(crate) fn with_actions(self, actions: Vec<Action>) -> Self {
        Self { actions, ..self }
    }

    /// Sets the address that the Enter key opens.
    pub(crate) fn open(self, href: String) -> Self {
        Self { href, ..self }
    }
}

#[derive(Template)]
#[template(path = "table.html")]
pub(crate) struct TablePage {
    pub(crate) shell: Shell,
    /// Address of the page below the console's path, with its query. The refresh requests it.
    pub(crate) here: String,
    pub(crate) note: String,
    /// HTML above the table.
    pub(crate) figure: String,
    pub(crate) filters: Vec<Field>,
    /// Actions on all listed rows.
    pub(crate) actions: Vec<Action>,
    pub(crate) headings: &'static [Words],
    pub(crate) rows: Vec<TableRow>,
    pub(crate) if_empty: (Words, Words),
    /// Query of the next page.
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
            if_empty: (tr("table.no_entries"), tr("table.new_entries_appear_here")),
            next: None,
        }
    }

    fn path(&self) -> &str {
        self.here.split('?').next().unwrap_or_default()
    }

    /// Returns the value that a filter shows.
    fn filter_value(&self, field: &Field) -> String {
        field.filter_value(&format!("{}{}", self.shell.base, self.path()))
    }

    fn has_actions(&self) -> bool {
        self.rows.iter().any(|row| !row.actions.is_empty())
    }
}
