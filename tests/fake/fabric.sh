# shellcheck shell=bash
# The fixture of the copies over software verbs: tests/e2e/lib.sh, and in place of ssh a script that
# runs the command here. Each run has a fabric of its own. Sourced by t-*.sh, never run.
#
# From meson: as for lib.sh, RCP being the program with software verbs, and E2E_LIB (lib.sh itself).

# shellcheck source=tests/e2e/lib.sh
. "${E2E_LIB:?tests/e2e/lib.sh}"

here='' there=''           # NICs at each end: RCP_FAKE_NICS
here_faults='' there_faults='' # RCP_FAKE_FAULTS
runs=0

write_ssh() {
	cat >"$dir/bin/ssh-here" <<-END
		#!/bin/sh
		# The last word is the command; it has the other end's NICs and faults.
		for last; do :; done
		PATH='$dir/bin':\$PATH SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2'
		RCP_FAKE_NICS=\$THERE_NICS RCP_FAKE_FAULTS=\$THERE_FAULTS
		export PATH SSH_CONNECTION RCP_FAKE_NICS RCP_FAKE_FAULTS
		sh -c "\$last" 2>>'$dir/there.err'
		status=\$?
		echo "\$status" >>'$dir/there.rc'
		exit "\$status"
	END
	chmod +x "$dir/bin/ssh-here"
}

begin_fabric() {
	local tool

	for tool in jq openssl; do have $tool || skip_all "$tool is not installed"; done
	begin
	write_ssh
}

# copy ARG...: rcp between the two ends.
copy() {
	: >"$dir/there.err" && : >"$dir/there.rc"
	runs=$((runs + 1))
	RCP_FAKE=copy-$$-$runs RCP_FAKE_NICS=$here RCP_FAKE_FAULTS=$here_faults \
		THERE_NICS=$there THERE_FAULTS=$there_faults \
		rcp --json -S "$dir/bin/ssh-here" "$@"
	# What the software verbs themselves complain of is never right.
	if grep -h '^fake verbs' "$dir/err" "$dir/there.err" >"$dir/complaints"; then
		fail "$(head -n 1 "$dir/complaints")"
	fi
}

over() {
	sum_is .transport rdma
	sum_is .fabric "$1"
	sum_is .fallback_reason null
}
# rcp does not wait for the end of a server that has said goodbye.
there_rc_is() { await 10 test -s there.rc; is "the server's status" "$(tail -n 1 "$dir/there.rc")" "$1"; }

# whole up|down FABRIC OPTION...: src/f, and all is well.
whole() {
	local way=$1 fabric=$2

	shift 2
	if [ "$way" = up ]; then
		copy "$@" src/f "box:$dir/dst/f"
	else
		copy "$@" "box:$dir/src/f" dst/f
	fi
	rc_is 0
	there_rc_is 0
	same src/f dst/f
	clean dst
	over "$fabric"
}
