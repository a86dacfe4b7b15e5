#!/bin/sh
# Runs its arguments in a mount namespace in which what a node writes to goes to overlays of its own, and in which the
# kernel settings that a kubelet insists on are plain files. The machine itself is not changed.
set -e
mount --make-rprivate /
for name in var run etc opt; do
  [ -d /$name ] || continue
  mkdir -p '@NODE@'/overlay/$name.upper '@NODE@'/overlay/$name.work
  mount -t overlay outrigger-$name \
    -o "lowerdir=/$name,upperdir=@NODE@/overlay/$name.upper,workdir=@NODE@/overlay/$name.work" /$name
done
# Where the kubelet's cadvisor looks for containerd.
mkdir -p /run/containerd
ln -sfn '@SOCKET@' /run/containerd/containerd.sock
mkdir -p '@NODE@'/sysctl
pretend() {
  [ -e /proc/sys/$1 ] || return 0
  file='@NODE@'/sysctl/$(echo $1 | tr / .)
  echo $2 > "$file"
  mount --bind "$file" /proc/sys/$1
}
pretend vm/overcommit_memory 1
pretend vm/panic_on_oom 0
pretend kernel/panic 10
pretend kernel/panic_on_oops 1
pretend kernel/keys/root_maxkeys 1000000
pretend kernel/keys/root_maxbytes 25000000
mount --make-rshared /
exec "$@"
