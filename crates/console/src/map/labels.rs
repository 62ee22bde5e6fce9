//! Space for the labels of a map, so that labels do not overlap.

/// Width of a letter, in a wide font, and height of a line.
const LETTER_WIDTH: f64 = 6.6;
const LINE_HEIGHT: f64 = 11.5;
/// Height of a line above its baseline.
const ASCENT: f64 = 9.0;

/// A rectangle of the drawing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extent {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Extent {
    /// Returns the rectangle around points; `None` if there are none.
    pub(super) fn of_points(points: &[(f64, f64)]) -> Option<Self> {
        let (x, y) = *points.first()?;
        let first = Self { left: x, top: y, right: x, bottom: y };
        Some(points.iter().fold(first, |all, (x, y)| Self {
            left: all.left.min(*x),
            top: all.top.min(*y),
            right: all.right.max(*x),
            bottom: all.bottom.max(*y),
        }))
    }

    /// Returns the rectangle of text lines that start at a baseline. `letters` is the length of the longest line.
    pub(super) fn of_text((left, baseline): (f64, f64), letters: usize, lines: u8) -> Self {
        let letters = u16::try_from(letters).unwrap_or(u16::MAX);
        let top = baseline - ASCENT;
        Self {
            left,
            top,
            right: left + f64::from(letters) * LETTER_WIDTH,
            bottom: top + f64::from(lines) * LINE_HEIGHT,
        }
    }

    /// Returns the rectangle of text that ends at `right`; parameters as in [`of_text`](Self::of_text).
    pub(super) fn of_text_before((right, baseline): (f64, f64), letters: usize, lines: u8) -> Self {
        let at = Self::of_text((right, baseline), letters, lines);
        let width = at.right - at.left;
        Self { left: at.left - width, right, ..at }
    }

    /// Returns the rectangle of text that is centred at `middle`; parameters as in [`of_text`](Self::of_text).
    pub(super) fn of_centred_text((middle, baseline): (f64, f64), letters: usize, lines: u8) -> Self {
        let at = Self::of_text((middle, baseline), letters, lines);
        let half = (at.right - at.left) / 2.0;
        Self { left: at.left - half, right: at.right - half, ..at }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    pub(super) fn contains(&self, other: &Self) -> bool {
        self.left <= other.left && other.right <= self.right && self.top <= other.top && other.bottom <= self.bottom
    }
}

/// Parts of a drawing that labels occupy.
#[derive(Debug)]
pub(super) struct LabelRoom {
    drawing: Extent,
    taken: Vec<Extent>,
}

impl LabelRoom {
    /// Returns a drawing without labels.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { drawing: Extent { left: 0.0, top: 0.0, right: width, bottom: height }, taken: Vec::new() }
    }

    /// Occupies a rectangle if it is inside the drawing and free. Returns whether it did.
    pub(super) fn take_free(&mut self, wanted: Extent) -> bool {
        let is_free = self.drawing.contains(&wanted) && !self.taken.iter().any(|taken| taken.overlaps(&wanted));
        if is_free {
            self.taken.push(wanted);
        }
        is_free
    }

    /// Occupies a rectangle, even if it is not free.
    pub(super) fn take(&mut self, wanted: Extent) {
        self.taken.push(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_or_leave_map() {
        let mut room = LabelRoom::new(200.0, 100.0);
        let text = |x: f64, y: f64| Extent::of_centred_text((x, y), 10, 1);
        assert!(room.take_free(text(100.0, 50.0)));
        assert!(!room.take_free(text(110.0, 52.0)), "over the first");
        assert!(room.take_free(text(100.0, 62.0)), "the line below");
        assert!(!room.take_free(text(10.0, 20.0)), "over the edge");
        let lines = Extent::of_text((0.0, 9.0), 4, 2);
        assert_eq!((lines.top, lines.bottom, lines.left), (0.0, 23.0, 0.0));
    }
}
