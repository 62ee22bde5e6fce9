//! Pages that are a table: rows with cells, each row with what can be done about it.

use std::{fmt::Display, sync::Arc};

use askama::Template;

use crate::{
    language::{Words, both, say},
    page::Shell,
    refusal::{self, Refusal},
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
    /// Values that the browser suggests, each with what it shows beside them.
    pub(crate) suggestions: Vec<(String, String)>,
}

impl Field {
    pub(crate) fn text(name: &'static str, label: Words, value: &str) -> Self {
        let (options, suggestions) = (Vec::new(), Vec::new());
        Self { name, label, kind: "text", value: value.to_owned(), required: false, options, suggestions }
    }

    /// What the page says and the person does not see.
    pub(crate) fn hidden(name: &'static str, value: &str) -> Self {
        Self { kind: "hidden", ..Self::text(name, both("", ""), value) }
    }

    pub(crate) fn reason() -> Self {
        Self::required("reason", both("Reason", "Alasan"))
    }

    /// A text that the browser insists on.
    pub(crate) fn required(name: &'static str, label: Words) -> Self {
        Self { required: true, ..Self::text(name, label, "") }
    }

    /// A time in UTC.
    pub(crate) fn time(name: &'static str, label: Words, value: &str) -> Self {
        Self { kind: "datetime-local", ..Self::text(name, label, value) }
    }

    pub(crate) fn choice(name: &'static str, label: Words, value: &str, options: &[(&str, &str)]) -> Self {
        let options = options.iter().map(|(value, label)| ((*value).to_owned(), (*label).to_owned())).collect();
        Self { options, ..Self::text(name, label, value) }
    }

    /// The value of a filter of the page at this path: what was filled in, if that was refused.
    fn filter_value(&self, path: &str) -> String {
        refusal::refused_filter(path, self.name).unwrap_or_else(|| self.value.clone())
    }
}

/// What can be done, with its form.
pub(crate) struct Action {
    /// What opens the form.
    pub(crate) label: String,
    /// What the button says.
    pub(crate) button: String,
    /// Below the console's path.
    pub(crate) path: String,
    /// What the person must know before.
    pub(crate) hint: Option<Words>,
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

    pub(crate) fn danger(self) -> Self {
        Self { is_danger: true, ..self }
    }

    /// Says something else on its button.
    pub(crate) fn button(self, words: Words) -> Self {
        Self { button: words.into(), ..self }
    }

    pub(crate) fn hint(self, words: Words) -> Self {
        Self { hint: Some(words), ..self }
    }

    /// Adds another button, which sends the same fields to another path.
    pub(crate) fn or(mut self, words: Words, path: String) -> Self {
        self.others.push((words, path));
        self
    }

    /// How the form stands: as the page makes it, or as a person sent it and it was refused. `base`: the console's path.
    pub(crate) fn state(&self, base: &str) -> FormState {
        let is_ours = |refused: &Refusal| {
            let paths = self.others.iter().map(|(_, path)| path).chain([&self.path]);
            let is_sent_here = paths.into_iter().any(|path| refused.action.strip_prefix(base) == Some(path.as_str()));
            // Forms of one path differ in what they hide, but for what grows old.
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

    /// What was filled in, or else what the page says.
    pub(crate) fn value<'a>(&'a self, field: &'a Field) -> &'a str {
        self.refused().and_then(|refused| refused.value(field.name)).unwrap_or(&field.value)
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

    /// What a filter shows.
    fn filter_value(&self, field: &Field) -> String {
        field.filter_value(&format!("{}{}", self.shell.base, self.path()))
    }

    fn has_actions(&self) -> bool {
        self.rows.iter().any(|row| !row.actions.is_empty())
    }
}
