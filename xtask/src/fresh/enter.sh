# shellcheck shell=bash
# Enters the root of a run, as process 1 of new mount, process, IPC and UTS namespaces, and runs COMMAND there. It is a
# shell's work because it becomes the command. pivot_root is used since a chroot would forbid the user namespaces that the
# stories make.
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
cd "$ROOT"
mkdir -p host usr/local/rust root/.cargo/registry
mount --bind -o ro "$RUST" usr/local/rust
mount --bind "$REGISTRY" root/.cargo/registry
for file in etc/resolv.conf etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "/$file" ] || { touch "$file" && mount --bind "/$file" "$file"; }
done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir -p dev/net dev/pts dev/shm
for device in null zero full random urandom tty net/tun; do
    [ ! -e "/dev/$device" ] || cp -a "/dev/$device" "dev/$device"
done
# As udev makes it, whatever mode it has out there.
[ ! -e dev/net/tun ] || chmod 666 dev/net/tun
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
pivot_root . host
umount -l /host
rmdir /host
cd /millrace
exec env -i ${CI:+CI="$CI"} ${MILLRACE_LONG:+MILLRACE_LONG="$MILLRACE_LONG"} TERM="${TERM:-dumb}" HOME=/root LANG=C.UTF-8 \
    ${CARGO_INCREMENTAL:+CARGO_INCREMENTAL="$CARGO_INCREMENTAL"} \
    PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "$COMMAND"
