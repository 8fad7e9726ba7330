#!/usr/bin/env bash
# Whole copies over software verbs, both ways, over every kind of NIC: right bytes, by RDMA, and over the
# fabric that it says. Where no RDMA can be: over TCP, and the reason told.

# shellcheck source=tests/fake/fabric.sh
. "${FABRIC_LIB:?tests/fake/fabric.sh}"

begin_fabric
data src/f 9876543

# both NAME NICS FABRIC OPTION...
both() {
	local name=$1 nics=$2 fabric=$3 way

	shift 3
	here=$nics there=$nics
	for way in up down; do t "$name, $way" whole "$way" "$fabric" "$@"; done
}

both 'RoCE v2' roce2 roce-v2

end
