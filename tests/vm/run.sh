#!/usr/bin/env bash
# Runs a command in a virtual machine: with the programs of this system, this tree and its binaries, the kernel of a
# Debian package, and control groups of version 2 only. The command may set the clock and suspend the machine.
#
#   tests/vm/run.sh KERNEL.deb 'target/debug/deps/black_box --test-threads=1 pressure::'
#
# Needs root, qemu-system-x86_64, a static busybox, cpio, mkfs.ext4 and a linux-image-…-cloud-amd64 of Debian, from 6.12.
# `cargo test --workspace --no-run` comes before: the machine has target/debug/quack and the tests black_box and groups.
# QUACK names another quack. The machine is emulated, and so slow that tests should run one at a time, on an idle
# system. Changes of its files are lost.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
kernel="$(realpath "$1")"
tree="$(realpath "$(dirname "$0")/../..")"
work="$(mktemp -d "$tree/target/vm.XXXXXX")"
trap 'rm -rf "$work"' EXIT

# The programs of this system, as hard links. Large ones that no test needs are left out.
root="$work/root"
mkdir -p "$root"/{proc,sys,dev,tmp,run,root,home,var/tmp} "$root$tree/target/debug/deps" "$root/vm"
left_out=(-path usr/share/doc)
for name in google-cloud-sdk jvm llvm-14 chromium firefox-esr; do
  left_out+=(-o -path "usr/lib/$name")
done
(cd / && find usr -xdev \( "${left_out[@]}" \) -prune -o -print0 | cpio -0 -pdl --quiet "$root" 2>/dev/null)
cp -a /bin /sbin /lib /lib64 /etc "$root"

# The tree and its binaries.
(cd "$tree" && git ls-files -z | cpio -0 -pd --quiet "$root$tree")
strip -g -o "$root$tree/target/debug/quack" "${QUACK:-$tree/target/debug/quack}"
for test in black_box groups; do
  newest="$(find "$tree/target/debug/deps" -name "$test-*" -executable -type f -printf '%T@ %p\n' | sort -n | tail -1)"
  strip -g -o "$root$tree/target/debug/deps/$test" "${newest#* }"
done
cat >"$root/vm/run" <<END
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
cd '$tree/crates/cli'
date -s '$(date -u +%FT%TZ)' >/dev/null
(cd '$tree' && $2)
echo "exit code \$?"
echo o >/proc/sysrq-trigger
sleep 60
END
truncate -s 8G "$work/root.img"
mkfs.ext4 -q -F -O ^has_journal -d "$root" "$work/root.img"

# The first program mounts a layer in memory on top, and starts the command.
dpkg-deb -x "$kernel" "$work/kernel"
initial="$work/initial"
mkdir -p "$initial"/{bin,dev,proc,lower,layer,new}
cp "$(command -v busybox)" "$initial/bin/busybox"
for module in virtio_blk overlay; do
  find "$work/kernel" -name "$module.ko.xz" -exec sh -c 'xz -dc "$1" >"$2"' _ {} "$initial/$module.ko" \;
done
cat >"$initial/init" <<'END'
#!/bin/busybox sh
PATH=/bin; /bin/busybox --install /bin
mount -t devtmpfs dev /dev
insmod /virtio_blk.ko; insmod /overlay.ko
mount -t ext4 -o ro /dev/vda /lower
mount -t tmpfs -o size=1500m layer /layer; mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work root /new
mount -t proc proc /new/proc; mount -t sysfs sys /new/sys; mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts -o ptmxmode=666 devpts /new/dev/pts; mount -t tmpfs shm /new/dev/shm
mount -t tmpfs tmp /new/tmp; mount -t tmpfs run /new/run
mount -t cgroup2 groups /new/sys/fs/cgroup
ifconfig lo 127.0.0.1 up
exec /bin/busybox switch_root /new /bin/bash /vm/run
END
chmod +x "$initial/init"
(cd "$initial" && find . | cpio -o -H newc --quiet | gzip -1 >"$work/initial.gz")

# Without the instruction cmpxchg16b, which QEMU 7.2 emulates wrongly on two processors.
qemu-system-x86_64 -accel tcg,thread=multi -cpu Westmere,-cx16 -m 4000 -smp 2 -nographic -no-reboot \
  -kernel "$work"/kernel/boot/vmlinuz-* -initrd "$work/initial.gz" -append "console=ttyS0 quiet panic=-1" \
  -drive "file=$work/root.img,format=raw,if=virtio,readonly=on" | tee "$work/output"
grep -aq '^exit code 0' "$work/output"
