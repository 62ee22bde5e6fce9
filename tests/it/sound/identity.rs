//! Who may do what, who did it, and what is forgotten about people.
