//! Harm on purpose, at a lab's switch.

use super::failure::{Result, fail};
use crate::lab::{self, Burst, Impairment, Lab, LossCounters, Offload};

/// What the switch does to packets while a column is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Column {
    /// Percent of the packets that do not arrive as they were.
    pub loss: f64,
    /// More than losing some.
    pub harm: Option<Impairment>,
}

impl Column {
    /// Only loses packets, percent.
    pub const fn losing(loss: f64) -> Self {
        Self { loss, harm: None }
    }

    /// Does this.
    pub fn doing(harm: Impairment) -> Self {
        Self {
            loss: harm.takes() * 100.0,
            harm: Some(harm),
        }
    }

    /// Whether nothing is done to packets.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// Switches between columns.
pub trait Loss {
    /// From now on packets fare as this column says.
    fn set(&mut self, column: &Column) -> Result<()>;

    /// What came of it, for people to read.
    fn remarks(&mut self) -> Result<Vec<String>>;
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

    fn remarks(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// Every run sees packets drawn alike.
const SEED: u64 = 0x706f_7274_6f6c_616e;

/// At the ports of a lab's switch, with segmentation and receive offload off
/// on every device as long as this lives, so that what is dropped is a packet.
pub struct LabLoss {
    loss: lab::Loss,
    _offload: Offload,
    percent: f64,
    /// Counters when the present share was set.
    since: LossCounters,
    /// What each share did so far.
    totals: Vec<(f64, LossCounters)>,
}

impl LabLoss {
    /// Begins with 0 percent; losses come in bursts of `burst`, or singly.
    pub fn start(lab: &Lab, burst: Option<Burst>) -> Result<Self> {
        let offload = Offload::off(lab)?;
        Ok(Self {
            loss: lab::Loss::attach(lab, SEED, burst.unwrap_or(Burst::SINGLE))?,
            _offload: offload,
            percent: 0.0,
            since: LossCounters::default(),
            totals: Vec::new(),
        })
    }

    fn account(&mut self) -> Result<()> {
        let now = self.loss.counters()?;
        let place = self
            .totals
            .iter()
            .position(|(percent, _)| *percent == self.percent);
        let place = place.unwrap_or_else(|| {
            self.totals.push((self.percent, LossCounters::default()));
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
        if column.loss == self.percent {
            return Ok(());
        }
        self.account()?;
        self.loss.set_percent(column.loss)?;
        self.percent = column.loss;
        Ok(())
    }

    fn remarks(&mut self) -> Result<Vec<String>> {
        self.account()?;
        let lossy = self.totals.iter().filter(|(percent, _)| *percent > 0.0);
        Ok(lossy
            .map(
                |(
                    percent,
                    LossCounters {
                        dropped, passed, ..
                    },
                )| {
                    let all = dropped + passed;
                    let share = *dropped as f64 * 100.0 / all.max(1) as f64;
                    format!("loss {percent} %: the switch dropped {share:.2} % of {all} packets")
                },
            )
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

    fn remarks(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl Drop for LabHarm {
    fn drop(&mut self) {
        if self.present.is_some()
            && let Err(failure) = lab::impair(&self.lab, &Impairment::NONE)
        {
            eprintln!("portolan: the lab is still impaired: {failure}");
        }
    }
}
