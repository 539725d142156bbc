# To be sourced, by scripts that root runs. After `fresh_root "$@"` the script has
# a mount namespace of its own and in it a copy of this system, in which it may
# install and remove whatever it likes: files that are changed there are changed
# nowhere else, and are gone when the script ends.
#
#   within COMMAND...     runs a command in the copy
#   changed               lists the files that differ from this system's, and the
#                         folders that this system has not
#   $room                 a folder that both see, at the same path; not listed
# shellcheck shell=bash

fresh_root() {
    [ "$(id -u)" -eq 0 ] || {
        echo "$0 needs root: it installs into a copy of this system" >&2
        exit 1
    }
    if [ "${FRESH_ROOT:-}" != "$0" ]; then
        FRESH_ROOT=$0 exec unshare --mount --propagation private "$0" "$@"
    fi
    local path
    _above=$(mktemp -d)
    mount -t tmpfs fresh-root "$_above"
    # The process that ends is the namespace's last: what is mounted goes with it.
    trap 'umount -l "$_above" && rmdir "$_above"' EXIT
    mkdir "$_above/changed" "$_above/work" "$_above/root" "$_above/room"
    _root=$_above/root _changed=$_above/changed
    mount -t overlay fresh-root -o "lowerdir=/,upperdir=$_above/changed,workdir=$_above/work" "$_root" || {
        echo "$0: no overlay file system can be mounted over / here" >&2
        exit 1
    }
    for path in /proc /sys /dev; do mount --rbind "$path" "$_root$path"; done
    # Of this system only the root's own file system is in the copy.
    for path in "$PWD" "${CARGO_TARGET_DIR:-$PWD/target}" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}"; do
        [ ! -d "$path" ] || mount --rbind "$path" "$_root$path"
    done
    room=/mnt
    mount --bind "$_above/room" "$_root$room"
    mount --bind "$_above/room" "$room"
}

within() { chroot "$_root" "$@"; }

changed() {
    local path
    while IFS= read -r path; do
        [ -d "$_changed$path" ] && [ -d "$path" ] || echo "$path"
    done < <(find "$_changed" -mindepth 1 -printf '/%P\n' | sort)
}
