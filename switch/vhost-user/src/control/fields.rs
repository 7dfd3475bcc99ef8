//! Reads the little-endian fields of a command, one after the other.

/// What is left of a command. Each reader returns `None` where the command ends before its field.
pub(super) struct Fields<'b>(pub(super) &'b [u8]);

impl<'b> Fields<'b> {
    pub(super) fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'b [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a switch: 0 is off, any other byte is on.
    pub(super) fn flag(&mut self) -> Option<bool> {
        self.u8().map(|byte| byte != 0)
    }
}
