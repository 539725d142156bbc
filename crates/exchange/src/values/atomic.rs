//! Atomic operations: which exist on which types, and what each does.

use super::{FENCE, Rights};

/// Largest size of the operands and comparands of one atomic operation, bytes: they fit one packet
/// of any network.
pub const ATOMIC_BYTES: usize = 1024;

/// An enumeration whose values are numbered from 0.
macro_rules! numbered {
    ($(#[$of:meta])* $name:ident: $($(#[$doc:meta])* $value:ident,)*) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $value,)*
        }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            /// Returns the value with this number, if there is one.
            #[must_use]
            pub const fn of(number: u8) -> Option<Self> {
                let known = (number as usize) < Self::ALL.len();
                if known { Some(Self::ALL[number as usize]) } else { None }
            }
        }
    };
}

numbered! {
    /// What an atomic operation writes to each element: `there` is the old value at the target,
    /// `with` the operand, `compare` the comparand.
    AtomicOp:
    /// `with`, if it is less.
    Min,
    /// `with`, if it is greater.
    Max,
    /// `there + with`. Integers wrap around.
    Sum,
    /// `there * with`. Integers wrap around.
    Product,
    /// 1 if `there` or `with` is not 0, else 0.
    LogicalOr,
    /// 1 if neither is 0, else 0.
    LogicalAnd,
    /// `there | with`.
    BitOr,
    /// `there & with`.
    BitAnd,
    /// 1 if exactly one of both is 0, else 0.
    LogicalXor,
    /// `there ^ with`.
    BitXor,
    /// `there`: no change, and no operand.
    Read,
    /// `with`.
    Write,
    /// `with`, if `compare == there`.
    SwapIfEqual,
    /// `with`, if `compare != there`.
    SwapIfNotEqual,
    /// `with`, if `compare <= there`.
    SwapIfLessOrEqual,
    /// `with`, if `compare < there`.
    SwapIfLess,
    /// `with`, if `compare >= there`.
    SwapIfGreaterOrEqual,
    /// `with`, if `compare > there`.
    SwapIfGreater,
    /// Masked swap: bits set in `compare` come from `with`, the others from `there`.
    SwapMasked,
}

numbered! {
    /// The type of the elements. All are little-endian.
    AtomicType:
    /// 8 bits.
    I8,
    /// 8 bits, unsigned.
    U8,
    /// 16 bits.
    I16,
    /// 16 bits, unsigned.
    U16,
    /// 32 bits.
    I32,
    /// 32 bits, unsigned.
    U32,
    /// 64 bits.
    I64,
    /// 64 bits, unsigned.
    U64,
    /// Single precision (`float`).
    F32,
    /// Double precision (`double`).
    F64,
    /// Two of single precision, the real part first.
    ComplexF32,
    /// Two of double precision.
    ComplexF64,
}

impl AtomicType {
    /// Bytes of an element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::ComplexF32 => 8,
            Self::ComplexF64 => 16,
        }
    }

    const fn is_complex(self) -> bool {
        matches!(self, Self::ComplexF32 | Self::ComplexF64)
    }
}

impl AtomicOp {
    /// Whether the operation takes comparands beside its operands.
    #[must_use]
    pub const fn compares(self) -> bool {
        self as u8 >= Self::SwapIfEqual as u8
    }

    /// Whether the operation is defined on this type: operations on bits need integers, and
    /// complex numbers have no order.
    #[must_use]
    pub const fn is_on(self, of: AtomicType) -> bool {
        match self {
            Self::BitOr | Self::BitAnd | Self::BitXor | Self::SwapMasked => {
                (of as u8) < AtomicType::F32 as u8
            }
            Self::Min
            | Self::Max
            | Self::SwapIfLessOrEqual
            | Self::SwapIfLess
            | Self::SwapIfGreaterOrEqual
            | Self::SwapIfGreater => !of.is_complex(),
            _ => true,
        }
    }

    /// Largest number of elements of one operation. `None`: not defined on the type, or only with
    /// `fetching`, as reads and swaps return the old values.
    #[must_use]
    pub const fn elements_max(self, of: AtomicType, fetching: bool) -> Option<usize> {
        let says = matches!(self, Self::Read) || self.compares();
        if !self.is_on(of) || (says && !fetching) {
            return None;
        }
        let values = if self.compares() { 2 } else { 1 };
        Some(ATOMIC_BYTES / (values * of.bytes()))
    }
}

/// An atomic operation on one or several consecutive elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic<'a> {
    /// What is done with each element.
    pub op: AtomicOp,
    /// Type of the elements.
    pub of: AtomicType,
    /// Number of elements, 1 to [`AtomicOp::elements_max`].
    pub count: usize,
    /// One operand for each element; empty for [`AtomicOp::Read`].
    pub operands: &'a [u8],
    /// One comparand for each element, if the operation [compares](AtomicOp::compares); else
    /// empty.
    pub compare: &'a [u8],
}

/// An [`Atomic`] without its values, as it is kept and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicKind {
    pub op: AtomicOp,
    pub of: AtomicType,
    pub count: usize,
    /// The old values are returned.
    pub fetching: bool,
}

const FETCHING: u64 = 1 << 16;
const COUNT_SHIFT: u32 = 32;

impl AtomicKind {
    /// `None`: no such operation, or the values have other lengths (P13.13).
    pub fn new(what: &Atomic<'_>, fetching: bool) -> Option<Self> {
        let Atomic { op, of, count, .. } = *what;
        let kind = Self {
            op,
            of,
            count,
            fetching,
        };
        let [operands, compare] = kind.lengths();
        (kind.is_possible() && [what.operands.len(), what.compare.len()] == [operands, compare])
            .then_some(kind)
    }

    fn is_possible(&self) -> bool {
        let most = self.op.elements_max(self.of, self.fetching);
        most.is_some_and(|most| (1..=most).contains(&self.count))
    }

    /// Encodes as flags, which [`Self::of_bits`] decodes.
    pub const fn to_bits(self) -> u64 {
        let fetching = if self.fetching { FETCHING } else { 0 };
        let numbers = self.op as u64 | (self.of as u64) << 8;
        numbers | fetching | (self.count as u64) << COUNT_SHIFT
    }

    pub fn of_bits(bits: u64) -> Option<Self> {
        let bits = bits & !FENCE;
        let kind = Self {
            op: AtomicOp::of(bits as u8)?,
            of: AtomicType::of((bits >> 8) as u8)?,
            count: (bits >> COUNT_SHIFT) as usize,
            fetching: bits & FETCHING != 0,
        };
        (kind.is_possible() && kind.to_bits() == bits).then_some(kind)
    }

    /// Bytes of all elements.
    pub const fn bytes(&self) -> usize {
        self.count * self.of.bytes()
    }

    /// Bytes of the operands, and of the comparands.
    pub const fn lengths(&self) -> [usize; 2] {
        let all = self.bytes();
        let operands = if matches!(self.op, AtomicOp::Read) {
            0
        } else {
            all
        };
        [operands, if self.op.compares() { all } else { 0 }]
    }

    /// Alignment of the offset, bytes.
    pub const fn alignment(&self) -> u64 {
        let parts = if self.of.is_complex() { 2 } else { 1 };
        (self.of.bytes() / parts) as u64
    }

    pub const fn rights(&self) -> Rights {
        match (self.op, self.fetching) {
            (AtomicOp::Read, _) => Rights::Get,
            (_, true) => Rights::Both,
            (_, false) => Rights::Put,
        }
    }

    /// Changes the elements `there`; `values` are the operands, then the comparands.
    pub fn apply(&self, there: &mut [u8], values: &[u8]) {
        let change = match self.of {
            AtomicType::I8 => change::<i8>,
            AtomicType::U8 => change::<u8>,
            AtomicType::I16 => change::<i16>,
            AtomicType::U16 => change::<u16>,
            AtomicType::I32 => change::<i32>,
            AtomicType::U32 => change::<u32>,
            AtomicType::I64 => change::<i64>,
            AtomicType::U64 => change::<u64>,
            AtomicType::F32 => change::<f32>,
            AtomicType::F64 => change::<f64>,
            AtomicType::ComplexF32 => change::<Complex<f32>>,
            AtomicType::ComplexF64 => change::<Complex<f64>>,
        };
        let (operands, compare) = values.split_at(self.lengths()[0]);
        change(self.op, there, operands, compare);
    }
}

/// A number as it lies in memory.
trait Element: Copy + PartialEq {
    const BYTES: usize = size_of::<Self>();
    const ZERO: Self;
    const ONE: Self;
    /// Decodes `BYTES` bytes, little-endian.
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn new(op: AtomicOp, there: Self, with: Self, compare: Self) -> Self;
}

fn change<E: Element>(op: AtomicOp, there: &mut [u8], operands: &[u8], compare: &[u8]) {
    let mut operands = operands.chunks_exact(E::BYTES).map(E::read);
    let mut compare = compare.chunks_exact(E::BYTES).map(E::read);
    for there in there.chunks_exact_mut(E::BYTES) {
        let (with, compare) = (operands.next(), compare.next());
        let [with, compare] = [with, compare].map(|it| it.unwrap_or(E::ZERO));
        E::new(op, E::read(there), with, compare).write(there);
    }
}

/// Operations on all types.
fn of_any<E: Element>(op: AtomicOp, there: E, with: E, compare: E) -> E {
    let [a, b] = [there, with].map(|it| it != E::ZERO);
    let truth = |is| if is { E::ONE } else { E::ZERO };
    match op {
        AtomicOp::LogicalOr => truth(a || b),
        AtomicOp::LogicalAnd => truth(a && b),
        AtomicOp::LogicalXor => truth(a != b),
        AtomicOp::Write => with,
        AtomicOp::SwapIfEqual if compare == there => with,
        AtomicOp::SwapIfNotEqual if compare != there => with,
        _ => there,
    }
}

/// Operations on types that have an order.
fn of_ordered<E: Element + PartialOrd>(op: AtomicOp, there: E, with: E, compare: E) -> E {
    let swaps = match op {
        AtomicOp::Min => with < there,
        AtomicOp::Max => with > there,
        AtomicOp::SwapIfLessOrEqual => compare <= there,
        AtomicOp::SwapIfLess => compare < there,
        AtomicOp::SwapIfGreaterOrEqual => compare >= there,
        AtomicOp::SwapIfGreater => compare > there,
        _ => return of_any(op, there, with, compare),
    };
    if swaps { with } else { there }
}

macro_rules! elements {
    ($($number:ty)*: $one:expr, |$op:ident, $there:ident, $with:ident, $compare:ident| $new:expr) => {$(
        impl Element for $number {
            const ZERO: Self = $one - $one;
            const ONE: Self = $one;

            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap_or_default())
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn new($op: AtomicOp, $there: Self, $with: Self, $compare: Self) -> Self {
                $new
            }
        }
    )*};
}

elements! { i8 u8 i16 u16 i32 u32 i64 u64: 1, |op, there, with, compare| match op {
    AtomicOp::Sum => there.wrapping_add(with),
    AtomicOp::Product => there.wrapping_mul(with),
    AtomicOp::BitOr => there | with,
    AtomicOp::BitAnd => there & with,
    AtomicOp::BitXor => there ^ with,
    AtomicOp::SwapMasked => (with & compare) | (there & !compare),
    _ => of_ordered(op, there, with, compare),
} }

elements! { f32 f64: 1.0, |op, there, with, compare| match op {
    AtomicOp::Sum => there + with,
    AtomicOp::Product => there * with,
    _ => of_ordered(op, there, with, compare),
} }

#[derive(Clone, Copy, PartialEq)]
struct Complex<F>([F; 2]);

macro_rules! complex {
    ($($part:ty)*) => {$(
        impl Element for Complex<$part> {
            const ZERO: Self = Self([0.0, 0.0]);
            const ONE: Self = Self([1.0, 0.0]);

            fn read(bytes: &[u8]) -> Self {
                let (real, imaginary) = bytes.split_at(<$part>::BYTES);
                Self([<$part>::read(real), <$part>::read(imaginary)])
            }

            fn write(self, bytes: &mut [u8]) {
                let (real, imaginary) = bytes.split_at_mut(<$part>::BYTES);
                self.0[0].write(real);
                self.0[1].write(imaginary);
            }

            fn new(op: AtomicOp, there: Self, with: Self, compare: Self) -> Self {
                let (Self([a, b]), Self([c, d])) = (there, with);
                match op {
                    AtomicOp::Sum => Self([a + c, b + d]),
                    AtomicOp::Product => Self([a * c - b * d, a * d + b * c]),
                    _ => of_any(op, there, with, compare),
                }
            }
        }
    )*};
}

complex! { f32 f64 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_are_multiplied() {
        let kind = AtomicKind {
            op: AtomicOp::Product,
            of: AtomicType::ComplexF64,
            count: 1,
            fetching: false,
        };
        let bytes = |number: [f64; 2]| {
            let mut bytes = [0; 16];
            Complex(number).write(&mut bytes);
            bytes
        };
        let mut there = bytes([1.0, 2.0]);
        kind.apply(&mut there, &bytes([3.0, 4.0]));
        assert_eq!(there, bytes([-5.0, 10.0]));
    }

    #[test]
    fn what_travels_is_what_there_is() {
        let mut kinds = 0;
        for (op, of) in AtomicOp::ALL
            .iter()
            .flat_map(|op| AtomicType::ALL.iter().map(move |of| (*op, *of)))
        {
            assert_eq!(AtomicOp::of(op as u8), Some(op));
            assert_eq!(AtomicType::of(of as u8), Some(of));
            for fetching in [false, true] {
                let most = op.elements_max(of, fetching);
                for count in [0, 1, 3, most.unwrap_or(7), most.map_or(7, |it| it + 1)] {
                    let kind = AtomicKind {
                        op,
                        of,
                        count,
                        fetching,
                    };
                    let is = most.is_some_and(|most| count > 0 && count <= most);
                    let bits = kind.to_bits();
                    assert_eq!(AtomicKind::of_bits(bits | FENCE), is.then_some(kind));
                    assert_eq!(AtomicKind::of_bits(bits | 1 << 20), None);
                    assert!(!is || kind.lengths().iter().sum::<usize>() <= ATOMIC_BYTES);
                    kinds += usize::from(is && count == 1);
                }
            }
        }
        // All 19 operations are on the 8 integer types. The 2 floating-point types lack the 4 on
        // bits, the 2 complex types also the 6 that need an order. Reads and 7 swaps are fetching
        // only.
        assert!(AtomicOp::of(19).is_none() && AtomicType::of(12).is_none());
        let (plain, fetching) = (8 * 11 + 2 * 8 + 2 * 6, 8 * 19 + 2 * 15 + 2 * 9);
        assert_eq!(kinds, plain + fetching);
    }
}
