//! Cells by number, such as one per second: the last so many, in blocks of sixty.
//!
//! A block in which nothing was counted takes no memory of its own, so an idle port costs little.

use super::cell::UNKNOWN;
use std::collections::VecDeque;

/// Cells of a block: the seconds of a minute, or the minutes of an hour.
pub(super) const BLOCK: u64 = 60;
/// [`BLOCK`] as a length.
pub(super) const CELLS: usize = 60;

/// The codes of one moment.
pub(super) type Cell<const N: usize> = [u16; N];

/// Sixty cells that follow one another; the first has a number divisible by sixty.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block<const N: usize> {
    /// Nothing is known.
    Unknown,
    /// All counts are 0.
    Idle,
    /// The cells.
    Kept(Box<[Cell<N>; CELLS]>),
}

/// The newest cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series<const N: usize> {
    /// The number of the newest cell, which is in the last block.
    pub(super) newest: u64,
    /// Oldest first, without gaps.
    pub(super) blocks: VecDeque<Block<N>>,
}

impl<const N: usize> Block<N> {
    /// Returns a block of cells of which nothing is known yet.
    fn open() -> Block<N> {
        Block::Kept(Box::new([[UNKNOWN; N]; CELLS]))
    }

    /// Returns a cell, to change it.
    fn cell(&mut self, place: usize) -> Option<&mut Cell<N>> {
        let code = match self {
            Block::Kept(_) => None,
            Block::Unknown => Some(UNKNOWN),
            Block::Idle => Some(0),
        };
        if let Some(code) = code {
            *self = Block::Kept(Box::new([[code; N]; CELLS]));
        }
        let Block::Kept(cells) = self else { return None };
        cells.get_mut(place)
    }

    /// Gives back the memory of cells in which nothing was counted.
    fn close(&mut self) {
        if let Block::Kept(cells) = self
            && cells.iter().flatten().all(|code| *code == 0)
        {
            *self = Block::Idle;
        }
    }
}

impl<const N: usize> Series<N> {
    /// Keeps a cell, and at most this many blocks. A cell before the newest is ignored.
    pub(super) fn put(&mut self, number: u64, cell: Cell<N>, most: usize) {
        let (block, newest) = (number / BLOCK, self.newest / BLOCK);
        if self.blocks.is_empty() {
            self.blocks.push_back(Block::open());
        } else if number < self.newest {
            return;
        } else if block > newest {
            self.blocks.back_mut().into_iter().for_each(Block::close);
            let unknown = usize::try_from(block - newest - 1).unwrap_or(most).min(most);
            self.blocks.extend(std::iter::repeat_n(Block::Unknown, unknown));
            self.blocks.push_back(Block::open());
        }
        self.newest = number;
        if let Some(kept) = self.blocks.back_mut().and_then(|block| block.cell(place(number))) {
            *kept = cell;
        }
        self.keep(most);
    }

    /// Drops the oldest blocks above this many.
    pub(super) fn keep(&mut self, most: usize) {
        let extra = self.blocks.len().saturating_sub(most);
        self.blocks.drain(..extra);
    }

    /// Returns the cell of a number; `None` if nothing is known.
    pub(super) fn get(&self, number: u64) -> Option<Cell<N>> {
        let back = (self.newest / BLOCK).checked_sub(number / BLOCK)?;
        let place_of_block = self.blocks.len().checked_sub(usize::try_from(back).ok()? + 1)?;
        let cell = match self.blocks.get(place_of_block)? {
            Block::Unknown => return None,
            Block::Idle => [0; N],
            Block::Kept(cells) => *cells.get(place(number))?,
        };
        (number <= self.newest && !cell.contains(&UNKNOWN)).then_some(cell)
    }

    /// Returns the bytes of memory that the cells take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let own = |block: &Block<N>| match block {
            Block::Kept(cells) => size_of_val(&**cells),
            _ => 0,
        };
        self.blocks.iter().map(own).sum::<usize>() + self.blocks.capacity() * size_of::<Block<N>>()
    }
}

/// Returns the place of a cell in its block.
fn place(number: u64) -> usize {
    usize::try_from(number % BLOCK).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// A map with all cells is the simple way to say what is kept.
        #[test]
        fn it_is_a_map_of_the_newest(steps in prop::collection::vec((0_u64..200, 0_u16..3), 1..60)) {
            let (mut series, mut map, mut number) = (Series::<1>::default(), BTreeMap::new(), 1000);
            for (ahead, code) in steps {
                number += ahead;
                series.put(number, [code], 4);
                map.insert(number, [code]);
            }
            for asked in number.saturating_sub(400)..number + 3 {
                let is_kept = asked / BLOCK + 4 > number / BLOCK;
                prop_assert_eq!(series.get(asked), map.get(&asked).copied().filter(|_| is_kept));
            }
            prop_assert!(series.blocks.len() <= 4);
        }
    }

    #[test]
    fn an_idle_hour_takes_no_cells() {
        let mut series = Series::<5>::default();
        (0..600).for_each(|number| series.put(number, [0; 5], 25));
        assert!(series.bytes() < 1200, "{}", series.bytes());
        assert_eq!(
            (series.get(0), series.get(599), series.get(600)),
            (Some([0; 5]), Some([0; 5]), None)
        );
    }
}
