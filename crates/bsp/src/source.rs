//! Source line of a program's call, if the program was compiled with debug information.

use std::backtrace::Backtrace;

/// Returns file and line of the running call, as `file.c:12`.
pub fn line(call: &str) -> Option<String> {
    line_in(&Backtrace::force_capture().to_string(), call)
}

/// `trace` has a line `N: FUNCTION` for each frame, the innermost first, and
/// `at FILE:LINE:COLUMN` below it where that is known.
fn line_in(trace: &str, call: &str) -> Option<String> {
    let is_ours = |line: &str| {
        let function = line.trim().split_once(": ").map(|(_, function)| function);
        let of_call = function.and_then(|it| it.strip_prefix(call));
        matches!(of_call, Some("" | "_64"))
    };
    let lines: Vec<&str> = trace.lines().collect();
    let last = lines.iter().rposition(|line| is_ours(line))?;
    // The place in this library follows, then the program's frame.
    let mut rest = lines[last + 1..].iter().map(|line| line.trim());
    rest.by_ref().find(|line| !line.starts_with("at "))?;
    let at = rest.next()?.strip_prefix("at ")?;
    let (at, _column) = at.rsplit_once(':')?;
    let (file, line) = at.rsplit_once(':')?;
    let name = file.rsplit('/').next()?;
    Some(format!("{name}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_behind_the_call_counts() {
        let trace = "   0: std::backtrace::Backtrace::create
   1: bsp::ending::abort
             at /x/ending.rs:5:1
   2: bsp_put_64
             at /x/c.rs:99:9
   3: spmd
             at ./src/pro.gram.c:60:9
   4: main
             at ./main.c:1:1
";
        assert_eq!(line_in(trace, "bsp_put").as_deref(), Some("pro.gram.c:60"));
        assert_eq!(line_in(trace, "bsp_get"), None);
        let without = trace.replace("             at ./src/pro.gram.c:60:9\n", "");
        assert_eq!(line_in(&without, "bsp_put"), None);
        for cut in 0..trace.len() {
            let _ = line_in(&trace[..cut], "bsp_put");
        }
    }
}
