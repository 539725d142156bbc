//! The benches of two ranks: `latency`, `bandwidth`, `rate` and `jitter`.

use portolan_hosts::failure::Result;

use crate::busy::Busy;
use crate::conduct::Conductor;
use crate::control::Pattern;
use crate::experiment::{Experiment, Findings, Stage};
use crate::job::two;
use crate::loss::{LabHarm, LabLoss, Loss, NoLoss};
use crate::options::{Measure, queue_group};
use crate::plan::{Kind, Plan, SLEEPS_AT_ONCE, Whereabouts};
use crate::ranks::asleep::Wait;
use crate::ranks::portolan::payload_max;
use crate::report::cost;
use crate::report::summary;

/// Which of them, and how.
pub struct Paired {
    /// What is measured.
    pub kind: Kind,
    /// How messages follow each other, of a bandwidth.
    pub pattern: Option<Pattern>,
    /// All else that was asked for.
    pub measure: Measure,
}

impl Experiment for Paired {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let common = &self.measure.common;
        let lab = stage.lab_of_two()?;
        let at = Whereabouts {
            shm: common.shm(lab.as_ref())?,
            lab: lab.is_some(),
        };
        let plan = Plan::new(self, at)?;
        let any = |does: fn(&crate::loss::Column) -> bool| plan.columns.iter().any(does);
        let mut loss: Box<dyn Loss> = match &lab {
            Some(lab) if any(|column| column.harm.is_some()) => Box::new(LabHarm::start(lab)?),
            Some(lab) if plan.lossy => Box::new(LabLoss::start(lab)?),
            _ if any(|column| column.busy > 0) => Box::new(Busy::new()?),
            _ => Box::new(NoLoss),
        };
        let mut spec = common.spec(lab.as_ref(), 2)?;
        if self.measure.standalone {
            // Both have host ports, or neither.
            spec.settings.insert("group".to_owned(), queue_group());
        }
        if plan.wait == Wait::Block {
            // A wait sleeps at once.
            for passes in SLEEPS_AT_ONCE {
                spec.settings.insert(passes.to_owned(), "0".to_owned());
            }
        }
        let sites = [0, 1].map(|host| stage.site(host));
        let payload = lab.as_ref().map(payload_max);
        let (link, cells) = stage.job(spec, |lines| {
            Conductor::new(&plan, two(lines)?, loss.as_mut(), sites, payload).run()
        })?;
        let setting = common.setting(link, 2);
        let mut found = summary::findings(&cells, &plan, &setting);
        found.rows.extend(cost::rows(&cells, &plan, &setting));
        found.remarks.extend(summary::tail_remarks(&found.rows));
        found.remarks.extend(loss.remarks()?);
        found
            .ratios
            .extend(summary::beside(&cells, &plan, &setting));
        found.ratios.extend(cost::ratios(&cells, &plan, &setting));
        Ok(found)
    }
}
