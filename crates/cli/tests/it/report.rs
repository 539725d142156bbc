//! `portolan report`: the page, and how a browser shows it.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{measuring, say};

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Measures a little of several benches into `folder`.
fn measure(folder: &Path) {
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let short = ["--slices", "2", "--slice-ms", "2", "--json"];
    let sweep = file("bandwidth.json");
    let jitter = file("jitter.json");
    for (bench, json) in [
        (&["bench", "bandwidth", "--link", "shm"][..], &sweep),
        (
            &["bench", "jitter", "--link", "shm", "--vs", "shm-floor"][..],
            &jitter,
        ),
    ] {
        say(&[bench, &short[..], &[json]].concat()).expect(0);
    }
}

/// What Chromium shows: width, and RGB pixels.
fn shown(page: &Path, dark: bool) -> (usize, Vec<[u8; 3]>) {
    let picture = page.with_extension(if dark { "dark.png" } else { "light.png" });
    let mut chromium = Command::new("chromium");
    chromium
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args(["--window-size=900,2000", "--force-device-scale-factor=1"])
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!(
            "--user-data-dir={}",
            page.with_extension("profile").display()
        ))
        // Nothing outside the page may be needed.
        .arg("--proxy-server=127.0.0.1:1");
    if dark {
        chromium.args([
            "--force-dark-mode",
            "--blink-settings=preferredColorScheme=0",
        ]);
    }
    let output = chromium
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("this test needs Chromium: make test-deps installs it");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut reader = png::Decoder::new(BufReader::new(File::open(&picture).unwrap()))
        .read_info()
        .unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let step = info.color_type.samples();
    assert!(step >= 3, "{info:?}");
    let pixels = bytes[..info.buffer_size()].chunks_exact(step);
    (
        info.width as usize,
        pixels.map(|p| [p[0], p[1], p[2]]).collect(),
    )
}

fn brightness(pixel: [u8; 3]) -> u32 {
    pixel.iter().map(|part| u32::from(*part)).sum::<u32>() / 3
}

#[test]
fn a_browser_shows_the_page_in_light_and_in_dark() {
    let folder = folder("report");
    measure(&folder);
    say(&["report", folder.to_str().unwrap()]).expect(0);
    let page = folder.join("report.html");
    for dark in [false, true] {
        let (width, pixels) = shown(&page, dark);
        assert!(width >= 800, "{width}");
        let back = brightness(pixels[0]);
        assert!(
            if dark { back < 60 } else { back > 200 },
            "background {back}, dark {dark}"
        );
        // Text is far from the background: so many pixels are.
        let text = pixels
            .iter()
            .filter(|p| brightness(**p).abs_diff(back) > 150)
            .count();
        assert!(text > 5_000, "{text} pixels of text, dark {dark}");
        // The plots' first colour, in lines and bars.
        let blue = pixels.iter().filter(|p| **p == [0, 114, 178]).count();
        assert!(blue > 1_000, "{blue} pixels of plots, dark {dark}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_no_report_is_left_out_and_said() {
    let folder = folder("no-report");
    let name = folder.to_str().unwrap();
    say(&["report", name])
        .expect(1)
        .complains(&[name, "--json"]);
    fs::write(folder.join("other.json"), "{}").unwrap();
    say(&["report", name])
        .expect(1)
        .complains(&["other.json", "bench"]);
    // One that is left out counts, also beside others.
    say(&measuring(&format!("{name}/latency.json"))).expect(0);
    let said = say(&["report", name]).expect(1);
    assert!(said.out.contains("report.html"), "{said:#?}");
    said.complains(&["left out other.json"]);
    fs::remove_file(folder.join("other.json")).unwrap();
    say(&["report", name]).expect(0);
    say(&["report", "/no/such/place"])
        .expect(1)
        .complains(&["/no/such/place"]);
    fs::remove_dir_all(folder).unwrap();
}

/// Of two processes; as `docs/bsp.md` describes the files.
#[test]
fn a_profile_of_supersteps_is_drawn() {
    let folder = folder("supersteps");
    let name = folder.to_str().unwrap();
    let columns = "superstep\tstart_us\tcompute_us\tcommunicate_us\twait_us\tsent_bytes\t\
                   received_bytes\tpackets\tacks\tresends\tduplicates";
    for process in 0..2 {
        let head = "processes 2\tlink udp\tbegan_us 5000\tl_us 20\tg_word_us 0.5\tg_mb_s 900";
        let rows = "0\t0\t10\t5\t5\t8\t8\t1\t0\t0\t0\n1\t20\t100\t50\t5\t800\t8\t2\t0\t1\t0\n";
        let text = format!("# process {process}\t{head}\n{columns}\n{rows}");
        fs::write(folder.join(format!("{process:05}.bsp.tsv")), text).unwrap();
    }
    say(&["report", name]).expect(0);
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    for part in ["2 processes, 2 supersteps, link udp", "<svg", "waiting"] {
        assert!(page.contains(part), "{part}");
    }
    // The second costs most: 155 us; predicted are 100 + 0.5 * 100 words + 20.
    let row: String = page
        .split("duplicates</th></tr><tr>")
        .nth(1)
        .unwrap()
        .chars()
        .take(400)
        .collect();
    let cells: Vec<&str> = row
        .split("\">")
        .skip(1)
        .map(|it| it.split('<').next().unwrap())
        .collect();
    assert_eq!(
        cells[..11],
        [
            "1", "155", "100", "50", "5", "800", "170", "4", "0", "2", "0"
        ]
    );
    fs::write(folder.join("00002.bsp.tsv"), "no profile").unwrap();
    say(&["report", name])
        .expect(1)
        .complains(&["left out 00002.bsp.tsv: it is no profile"]);
    fs::remove_dir_all(folder).unwrap();
}
