//! Recycles the allocation of scratch vectors with elements that borrow for one turn.

/// Empties a vector and gives its allocation to the next turn, which has other loans. `A` and `B`
/// are the same type but for lifetimes; collecting an emptied vector into one of the same layout
/// reuses its allocation.
pub fn recycle<A, B>(mut list: Vec<A>) -> Vec<B> {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()) };
    list.clear();
    list.into_iter().filter_map(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::recycle;

    #[test]
    fn the_allocation_stays() {
        let local = String::from("local");
        let mut list: Vec<&str> = Vec::with_capacity(64);
        list.push(&local);
        let (address, capacity) = (list.as_ptr() as usize, list.capacity());
        let next: Vec<&'static str> = recycle(list);
        assert_eq!((next.as_ptr() as usize, next.capacity(), next.len()), (address, capacity, 0));
    }
}
