//! The holes of a run log: stretches reserved and never stored (CLD-L5). Pure, shared
//! by the backends that must keep them.

use std::ops::Range;

use bytes::Bytes;

use super::LogPart;

/// Stretches of a log that hold nothing: sorted, disjoint, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes(Vec<Range<u64>>);

impl Holes {
    /// The holes among `ranges`, in any order.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut holes = Self::default();
        for range in ranges {
            holes.add(range);
        }
        holes
    }

    /// Adds a hole.
    pub fn add(&mut self, hole: Range<u64>) {
        self.fill(hole.clone());
        if !hole.is_empty() {
            self.0.push(hole);
            self.0.sort_by_key(|r| r.start);
        }
    }

    /// Takes a stretch that is stored now out of the holes.
    pub fn fill(&mut self, stored: Range<u64>) {
        let cut =
            |r: Range<u64>| [r.start..r.end.min(stored.start), r.start.max(stored.end)..r.end];
        let rest = std::mem::take(&mut self.0).into_iter().flat_map(cut);
        self.0 = rest.filter(|r| !r.is_empty()).collect();
    }

    /// The holes in order.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Cuts `stretch` into pieces that are hole (`true`) or stored (`false`), in order.
    ///
    /// ```
    /// use backtrail_core::store::holes::Holes;
    /// let holes = Holes::new([2..4]);
    /// assert_eq!(holes.split(0..5), [(0..2, false), (2..4, true), (4..5, false)]);
    /// ```
    pub fn split(&self, stretch: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut out = Vec::new();
        let mut at = stretch.start;
        for hole in &self.0 {
            let start = hole.start.clamp(at, stretch.end.max(at));
            let end = hole.end.clamp(start, stretch.end.max(start));
            if start < end {
                if at < start {
                    out.push((at..start, false));
                }
                out.push((start..end, true));
                at = end;
            }
        }
        if at < stretch.end {
            out.push((at..stretch.end, false));
        }
        out
    }

    /// The parts of a log: `read` gives the bytes of a stored stretch.
    pub fn parts<E>(
        &self,
        stretch: Range<u64>,
        mut read: impl FnMut(Range<u64>) -> Result<Bytes, E>,
    ) -> Result<Vec<LogPart>, E> {
        let mut out = Vec::new();
        for (range, is_hole) in self.split(stretch) {
            let (offset, len) = (range.start, range.end - range.start);
            out.push(match is_hole {
                true => LogPart::Hole { offset, len },
                false => LogPart::Bytes { offset, bytes: read(range)? },
            });
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_added_filled_and_cut() {
        let mut holes = Holes::new([10..20, 30..40, 5..5]);
        assert_eq!(holes.ranges(), [10..20, 30..40]);
        holes.fill(12..14);
        assert_eq!(holes.ranges(), [10..12, 14..20, 30..40]);
        holes.fill(0..16);
        assert_eq!(holes.ranges(), [16..20, 30..40]);
        assert_eq!(holes.split(18..35), [(18..20, true), (20..30, false), (30..35, true)]);
        assert_eq!(holes.split(40..41), [(40..41, false)]);
        assert!(holes.split(7..7).is_empty());
        holes.fill(0..100);
        assert!(holes.ranges().is_empty());
    }
}
