#!/usr/bin/env bash
# hosts.sh MPIRUN PROGRAM: starts the program as ranks on two hosts that only TCP joins: network namespaces with names of
# their own, on one bridge. All of them are gone when this ends. It is skipped where namespaces are not allowed, or where
# this MPI, which is to be Open MPI, starts no processes.
set -euo pipefail
if [ "${1:-}" != inside ]; then
  "$1" --version | grep -q "open-mpi.org" || { echo "$1 is not Open MPI" && exit 77; }
  for tool in ip unshare; do command -v $tool >/dev/null || { echo "$tool is not here" && exit 77; }; done
  unshare --net --mount --uts ip link add joins type bridge 2>/dev/null || { echo "no network namespaces here" && exit 77; }
  exec unshare --net --mount --uts bash "$0" inside "$@"
fi
mpirun=$2 program=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'echo "this machine joins no two hosts: $BASH_COMMAND" && exit 77' ERR
mkdir -p /run/netns && mount -t tmpfs none /run/netns  # seen by this script and its children alone
hostname front
ip link set lo up
ip link add joins type bridge
ip addr add 10.77.0.1/24 dev joins
ip link set joins up
for host in 2 3; do
  ip netns add host$host
  ip link add to$host type veth peer name eth0 netns host$host
  ip link set to$host master joins up
  ip -n host$host link set lo up
  ip -n host$host addr add 10.77.0.$host/24 dev eth0
  ip -n host$host link set eth0 up
done
trap - ERR
cat >"$folder/agent" <<'AGENT'
#!/usr/bin/env bash
# What mpirun calls in place of ssh: agent HOST COMMAND...
host=host${1##*.}
shift
exec ip netns exec "$host" unshare --uts bash -c "hostname $host; $*"
AGENT
chmod +x "$folder/agent"
over_hosts() {
  timeout 60 "$mpirun" --allow-run-as-root --oversubscribe --mca plm_rsh_agent "$folder/agent" --mca pml ob1 --mca btl tcp,self \
    --host 10.77.0.2:2,10.77.0.3:2 -n 4 "$@"
}
[ "$(over_hosts hostname | sort | uniq -c | xargs)" = "2 host2 2 host3" ] || { echo "$mpirun starts no processes here" && exit 77; }
over_hosts "$program"
