//! Atomic operations as plain numbers have them, integers in 128 bits.

use portolan_exchange::{Atomic, AtomicOp, AtomicType, Rights};

use crate::common::Rng;

/// One, with values of its own.
#[derive(Clone, Debug)]
pub struct Change {
    pub op: AtomicOp,
    pub of: AtomicType,
    pub count: usize,
    pub fetching: bool,
    pub operands: Vec<u8>,
    pub compare: Vec<u8>,
}

/// A number, or a part of a complex one.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Number {
    Integer(i128),
    Single(f32),
    Double(f64),
}

use Number::{Double, Integer, Single};

/// The type of the parts of an element.
fn part_of(of: AtomicType) -> AtomicType {
    match of {
        AtomicType::ComplexF32 => AtomicType::F32,
        AtomicType::ComplexF64 => AtomicType::F64,
        of => of,
    }
}

fn read(of: AtomicType, bytes: &[u8]) -> Vec<Number> {
    use AtomicType::{F32, F64, I8, I16, I32, I64};
    let part = part_of(of);
    let number = |bytes: &[u8]| match part {
        F32 => Single(f32::from_le_bytes(bytes.try_into().expect("4 bytes"))),
        F64 => Double(f64::from_le_bytes(bytes.try_into().expect("8 bytes"))),
        _ => {
            let negative = matches!(part, I8 | I16 | I32 | I64) && bytes[bytes.len() - 1] > 0x7f;
            let mut all = [if negative { 0xff } else { 0 }; 16];
            all[..bytes.len()].copy_from_slice(bytes);
            Integer(i128::from_le_bytes(all))
        }
    };
    bytes.chunks(part.bytes()).map(number).collect()
}

fn write(of: AtomicType, numbers: &[Number]) -> Vec<u8> {
    let bytes = |number: &Number| match *number {
        Single(x) => x.to_le_bytes().to_vec(),
        Double(x) => x.to_le_bytes().to_vec(),
        Integer(x) => x.to_le_bytes()[..of.bytes()].to_vec(),
    };
    numbers.iter().flat_map(bytes).collect()
}

/// A small number of halves.
fn small(of: AtomicType, halves: i8) -> Number {
    match part_of(of) {
        AtomicType::F32 => Single(f32::from(halves) / 2.0),
        AtomicType::F64 => Double(f64::from(halves) / 2.0),
        _ => Integer((halves / 2).into()),
    }
}

/// Of numbers that are computed: the new ones.
fn compute(op: AtomicOp, of: AtomicType, a: &[Number], b: &[Number]) -> Vec<Number> {
    let is = |numbers: &[Number]| numbers.iter().any(|it| *it != small(of, 0));
    let truth = |yes: bool| {
        let mut all = vec![small(of, 0); a.len()];
        all[0] = small(of, if yes { 2 } else { 0 });
        all
    };
    let each = |(a, b): (&Number, &Number)| match (op, *a, *b) {
        (AtomicOp::Sum, Integer(a), Integer(b)) => Integer(a + b),
        (AtomicOp::Sum, Single(a), Single(b)) => Single(a + b),
        (AtomicOp::Sum, Double(a), Double(b)) => Double(a + b),
        (AtomicOp::Product, Integer(a), Integer(b)) => Integer(a.wrapping_mul(b)),
        (AtomicOp::Product, Single(a), Single(b)) => Single(a * b),
        (AtomicOp::Product, Double(a), Double(b)) => Double(a * b),
        (AtomicOp::BitOr, Integer(a), Integer(b)) => Integer(a | b),
        (AtomicOp::BitAnd, Integer(a), Integer(b)) => Integer(a & b),
        (AtomicOp::BitXor, Integer(a), Integer(b)) => Integer(a ^ b),
        it => panic!("{it:?}"),
    };
    match op {
        AtomicOp::LogicalOr => truth(is(a) | is(b)),
        AtomicOp::LogicalAnd => truth(is(a) & is(b)),
        AtomicOp::LogicalXor => truth(is(a) ^ is(b)),
        _ => a.iter().zip(b).map(each).collect(),
    }
}

impl Change {
    /// Any that there is.
    pub fn any(rng: &mut Rng) -> Self {
        loop {
            let op = AtomicOp::ALL[rng.below(19) as usize];
            let of = AtomicType::ALL[rng.below(12) as usize];
            let fetching = rng.chance(60);
            // Of a complex product of what is no number nobody knows which that is.
            let unsure = op == AtomicOp::Product && part_of(of) != of;
            let Some(most) = op.elements_max(of, fetching).filter(|_| !unsure) else {
                continue;
            };
            let most = if rng.chance(80) { most.min(6) } else { most };
            let count = 1 + rng.below(most as u64) as usize;
            let mut values = |any: bool| -> Vec<u8> {
                let all = (0..count).flat_map(|_| Self::value(of, rng));
                if any { all.collect() } else { Vec::new() }
            };
            let operands = values(op != AtomicOp::Read);
            let compare = values(op.compares());
            return Self {
                op,
                of,
                count,
                fetching,
                operands,
                compare,
            };
        }
    }

    /// One of few, so that results are exact and values meet again, or any integer.
    fn value(of: AtomicType, rng: &mut Rng) -> Vec<u8> {
        if matches!(small(of, 0), Integer(_)) && rng.chance(50) {
            return rng.next().to_le_bytes()[..of.bytes()].to_vec();
        }
        let parts = of.bytes() / part_of(of).bytes();
        let numbers: Vec<Number> = (0..parts)
            .map(|_| small(of, rng.below(9) as i8 - 4))
            .collect();
        write(of, &numbers)
    }

    pub fn bytes(&self) -> usize {
        self.count * self.of.bytes()
    }

    pub fn what(&self) -> Atomic<'_> {
        Atomic {
            op: self.op,
            of: self.of,
            count: self.count,
            operands: &self.operands,
            compare: &self.compare,
        }
    }

    pub fn rights(&self) -> Rights {
        match (self.op == AtomicOp::Read, self.fetching) {
            (true, _) => Rights::Get,
            (_, true) => Rights::Both,
            (_, false) => Rights::Put,
        }
    }

    pub fn aligned(&self) -> u64 {
        part_of(self.of).bytes() as u64
    }

    /// What is there after it.
    pub fn after(&self, there: &[u8]) -> Vec<u8> {
        let size = self.of.bytes();
        let all = |from: &[u8]| from.chunks(size).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (there, operands, compare) = (all(there), all(&self.operands), all(&self.compare));
        let one = |(i, there): (usize, &Vec<u8>)| {
            let stands = read(self.of, there);
            let with = operands.get(i).map(|it| read(self.of, it));
            let compare = compare.get(i).map(|it| read(self.of, it));
            let taken = match (self.op, &with, &compare) {
                (AtomicOp::Read, ..) => false,
                (AtomicOp::Write, ..) => true,
                (AtomicOp::Min, Some(with), _) => *with < stands,
                (AtomicOp::Max, Some(with), _) => *with > stands,
                (AtomicOp::SwapIfEqual, _, Some(it)) => *it == stands,
                (AtomicOp::SwapIfNotEqual, _, Some(it)) => *it != stands,
                (AtomicOp::SwapIfLessOrEqual, _, Some(it)) => *it <= stands,
                (AtomicOp::SwapIfLess, _, Some(it)) => *it < stands,
                (AtomicOp::SwapIfGreaterOrEqual, _, Some(it)) => *it >= stands,
                (AtomicOp::SwapIfGreater, _, Some(it)) => *it > stands,
                (AtomicOp::SwapMasked, _, Some(_)) => {
                    let bits = there
                        .iter()
                        .zip(&operands[i])
                        .zip(&self.compare[i * size..]);
                    return bits.map(|((t, w), c)| (w & c) | (t & !c)).collect();
                }
                (op, Some(with), None) => {
                    return write(self.of, &compute(op, self.of, &stands, with));
                }
                it => panic!("{it:?}"),
            };
            if taken {
                operands[i].clone()
            } else {
                there.clone()
            }
        };
        there.iter().enumerate().flat_map(one).collect()
    }

    /// What its completion says was there.
    pub fn data(&self, found: &[u8]) -> Option<u64> {
        let mut word = [0; 8];
        if !self.fetching || self.count > 1 || found.len() > 8 {
            return None;
        }
        word[..found.len()].copy_from_slice(found);
        Some(u64::from_le_bytes(word))
    }
}
