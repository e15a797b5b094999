#!/bin/sh
# Installs or upgrades the agent on many systemd hosts over SSH, one after the other. The first host that is not ready stops it.
# Running tasks continue: the new agent recovers them.
#
#   fleet.sh PACKAGE HOSTS [agent.hcl]
#
# PACKAGE: the .deb or .rpm of `cargo xtask package`. HOSTS: a file with one host a line, as ssh names it; '#' begins a comment.
# agent.hcl: settings for every host, checked by the new version before it is installed.
# The user on the hosts is root, or may use sudo without a password.
# FLEET_READY_SECONDS: how long a host may take to recover its tasks (120). FLEET_SSH: options for ssh and scp.
set -eu

usage() {
	sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

[ $# -ge 2 ] && [ $# -le 3 ] || usage
package=$1 hosts=$2 settings=${3:-}
case $package in
*.deb) install='dpkg --install --force-confold' suffix=deb ;;
*.rpm) install='rpm --upgrade --replacepkgs' suffix=rpm ;;
*) echo "fleet.sh: $package is neither a .deb nor a .rpm" >&2; exit 2 ;;
esac
for file in "$package" "$hosts" ${settings:+"$settings"}; do
	[ -r "$file" ] || { echo "fleet.sh: cannot read $file" >&2; exit 2; }
done

ready=${FLEET_READY_SECONDS:-120}
done_hosts=0
# Descriptor 3: ssh would read the rest of the list as its input.
while read -r host rest <&3 || [ -n "$host" ]; do
	case $host in '' | '#'*) continue ;; -*) echo "fleet.sh: $host is no host" >&2; exit 2 ;; esac
	echo "$host: installing"
	# shellcheck disable=SC2086 # options are words
	scp ${FLEET_SSH:-} -q "$package" "$host:/tmp/allostat-fleet.$suffix" </dev/null
	if [ -n "$settings" ]; then
		# shellcheck disable=SC2086
		scp ${FLEET_SSH:-} -q "$settings" "$host:/tmp/allostat-fleet.hcl" </dev/null
	fi
	# shellcheck disable=SC2086
	ssh ${FLEET_SSH:-} "$host" "INSTALL='$install' SUFFIX=$suffix SETTINGS='${settings:+yes}' READY=$ready sh -s" <<-'REMOTE' || {
		set -eu
		sudo=
		[ "$(id -u)" = 0 ] || sudo=sudo
		new=/tmp/allostat-fleet.$SUFFIX
		$sudo $INSTALL "$new"
		if [ -n "$SETTINGS" ]; then
			allostat check /tmp/allostat-fleet.hcl
			$sudo install -m 0644 /tmp/allostat-fleet.hcl /etc/allostat/agent.hcl
		fi
		$sudo systemctl enable allostat
		$sudo systemctl restart allostat
		# `allostat node` answers once the agent has recovered its tasks.
		until $sudo allostat node >/dev/null 2>&1; do
			READY=$((READY - 1))
			[ "$READY" -gt 0 ] || { echo 'the agent is not ready; see: journalctl -u allostat' >&2; exit 1; }
			sleep 1
		done
		rm -f "$new" /tmp/allostat-fleet.hcl
	REMOTE
		echo "fleet.sh: $host failed; $done_hosts hosts before it are done, later ones are unchanged" >&2
		exit 1
	}
	done_hosts=$((done_hosts + 1))
	echo "$host: ready"
done 3<"$hosts"
echo "$done_hosts hosts are done"
