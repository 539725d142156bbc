//! Harm on purpose, at a lab's switch.

use portolan_hosts::failure::{Result, fail};
use portolan_hosts::lab::{self, Burst, Impairment, Lab, LossCounters, Offload};
use portolan_hosts::print::tell;

/// What the switch does to packets while a column is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Percent of the packets that do not arrive as they were.
    pub loss: f64,
    /// Lengths of bursts of losses; none: singly.
    pub burst: Option<Burst>,
    /// More than losing some.
    pub harm: Option<Impairment>,
    /// Strangers send forged packets meanwhile.
    pub forged: bool,
    /// Busy loops that run on each core meanwhile.
    pub busy: u32,
}

impl Column {
    /// Nothing is done to packets.
    pub const CLEAN: Self = Self {
        loss: 0.0,
        burst: None,
        harm: None,
        forged: false,
        busy: 0,
    };
    /// Forged ones come beside them.
    pub const FORGED: Self = Self {
        forged: true,
        ..Self::CLEAN
    };

    /// Only loses packets, percent: in bursts where there are any to lose.
    pub fn losing(loss: f64, burst: Option<Burst>) -> Self {
        Self {
            loss,
            burst: burst.filter(|_| loss > 0.0),
            ..Self::CLEAN
        }
    }

    /// So many busy loops run on each core.
    pub fn busy(loops: u32) -> Self {
        Self {
            busy: loops,
            ..Self::CLEAN
        }
    }

    /// What else goes on while it is measured.
    pub fn beside(&self) -> Option<String> {
        match self {
            Self { forged: true, .. } => Some("forged packets".to_owned()),
            Self { busy: 1, .. } => Some("1 busy loop a core".to_owned()),
            Self { busy: 2.., .. } => Some(format!("{} busy loops a core", self.busy)),
            _ => None,
        }
    }

    /// Does this.
    pub fn doing(harm: Impairment) -> Self {
        Self {
            loss: harm.takes() * 100.0,
            harm: Some(harm),
            ..Self::CLEAN
        }
    }

    /// Whether nothing is done to packets.
    pub fn is_clean(&self) -> bool {
        *self == Self::CLEAN
    }
}

/// Switches between columns.
pub trait Loss {
    /// From now on packets fare as this column says.
    fn set(&mut self, column: &Column) -> Result<()>;

    /// What came of it, for people to read.
    fn remarks(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// Where there is nothing to switch.
pub struct NoLoss;

impl Loss for NoLoss {
    fn set(&mut self, column: &Column) -> Result<()> {
        if column.loss > 0.0 {
            fail("packets are lost on purpose in a lab only: add --lab NAME")
        } else {
            Ok(())
        }
    }
}

/// Every run sees packets drawn alike.
const SEED: u64 = 0x706f_7274_6f6c_616e;

/// At the ports of a lab's switch, with segmentation and receive offload off
/// on every device as long as this lives, so that what is dropped is a packet.
pub struct LabLoss {
    loss: lab::Loss,
    _offload: Offload,
    present: Column,
    /// Counters when the present column was set.
    since: LossCounters,
    /// What each column did so far.
    totals: Vec<(Column, LossCounters)>,
}

impl LabLoss {
    /// Begins without loss.
    pub fn start(lab: &Lab) -> Result<Self> {
        let offload = Offload::off(lab)?;
        Ok(Self {
            loss: lab::Loss::attach(lab, SEED)?,
            _offload: offload,
            present: Column::CLEAN,
            since: LossCounters::default(),
            totals: Vec::new(),
        })
    }

    fn account(&mut self) -> Result<()> {
        let now = self.loss.counters()?;
        let place = self
            .totals
            .iter()
            .position(|(column, _)| *column == self.present);
        let place = place.unwrap_or_else(|| {
            self.totals.push((self.present, LossCounters::default()));
            self.totals.len() - 1
        });
        let total = &mut self.totals[place].1;
        total.dropped += now.dropped - self.since.dropped;
        total.passed += now.passed - self.since.passed;
        self.since = now;
        Ok(())
    }
}

impl Loss for LabLoss {
    fn set(&mut self, column: &Column) -> Result<()> {
        if *column == self.present {
            return Ok(());
        }
        self.account()?;
        self.loss
            .set(column.loss, column.burst.unwrap_or(Burst::SINGLE))?;
        self.present = *column;
        Ok(())
    }

    fn remarks(&mut self) -> Result<Vec<String>> {
        self.account()?;
        let lossy = self.totals.iter().filter(|(column, _)| column.loss > 0.0);
        Ok(lossy
            .map(|(column, counted)| {
                let all = counted.dropped + counted.passed;
                let share = counted.dropped as f64 * 100.0 / all.max(1) as f64;
                let bursts = column
                    .burst
                    .map(|burst| format!(" in bursts of {burst}"))
                    .unwrap_or_default();
                format!(
                    "loss {} %{bursts}: the switch dropped {share:.2} % of {all} packets",
                    column.loss
                )
            })
            .collect())
    }
}

/// Harm of any kind, as `lab impair` does it, with offload off like
/// [`LabLoss`]. It ends with this.
pub struct LabHarm {
    lab: Lab,
    _offload: Offload,
    present: Option<Impairment>,
}

impl LabHarm {
    /// Begins without harm.
    pub fn start(lab: &Lab) -> Result<Self> {
        let offload = Offload::off(lab)?;
        lab::impair(lab, &Impairment::NONE)?;
        Ok(Self {
            lab: lab.clone(),
            _offload: offload,
            present: None,
        })
    }
}

impl Loss for LabHarm {
    fn set(&mut self, column: &Column) -> Result<()> {
        if column.harm != self.present {
            lab::impair(&self.lab, &column.harm.unwrap_or(Impairment::NONE))?;
            self.present = column.harm;
        }
        Ok(())
    }
}

impl Drop for LabHarm {
    fn drop(&mut self) {
        if self.present.is_some()
            && let Err(failure) = lab::impair(&self.lab, &Impairment::NONE)
        {
            tell(format_args!(
                "portolan: the lab is still impaired: {failure}"
            ));
        }
    }
}
