#!/usr/bin/env bash
# Address sanitizer over what holds unsafe code: rings, links and the C
# interfaces, the C programs of their tests among them. Needs nightly Rust.
# Arguments are options of cargo's own.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
cargo +nightly --version >/dev/null 2>&1 || {
    echo "the address sanitizer needs nightly Rust: rustup toolchain install nightly" >&2
    exit 1
}
export RUSTFLAGS="-Zsanitizer=address" PORTOLAN_TEST_CFLAGS="-fsanitize=address"
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:strict_string_checks=1:detect_stack_use_after_return=1:abort_on_error=1
options=("$@") code=0
# Nothing here computes for long enough to pay for optimizing them.
for crate in engine exchange proto seal wire; do
    options+=(--config "profile.dev.package.portolan-$crate.opt-level=1")
done
run() {
    local what=$1
    shift
    cargo +nightly "${options[@]}" "$what" --locked --target "$target" \
        --target-dir "${CARGO_TARGET_DIR:-target}/sanitize" "$@" || code=1
}
# One set of packages throughout: with another set cargo chooses other features
# of what they depend on, and compiles most of it once more.
packages=(-p portolan-ring -p portolan-link -p portolan -p portolan-bsp -p portolan-library)
run build "${packages[@]}" --example tokio --example bsp-sum
# The shared library is linked by cc alone, which has no sanitizer of Rust's.
run test --no-fail-fast "${packages[@]}" --lib --test '*' -- \
    --skip one_shared_program --skip the_shared_library
exit $code
