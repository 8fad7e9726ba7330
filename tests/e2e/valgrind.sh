#!/bin/bash
# Whole copies with both ends under valgrind: over TCP, sealed and not, through ssh, a tree, a rerun, an error.
# usage: valgrind.sh PIDFD (tests/e2e/pidfd.c)
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl valgrind
begin
start_sshd

# Both ends are this; what valgrind has to say goes where sanitizers' reports do.
mkdir reports
export E2E_REPORTS=$dir/reports
cat >bin/checked <<END
#!/bin/sh
LD_PRELOAD='$1' exec valgrind -q --fair-sched=yes --log-file='$dir/reports/valgrind.%p' --error-exitcode=99 --leak-check=full \\
	--errors-for-leak-kinds=definite,possible --suppressions='$E2E_SUPPRESSIONS/valgrind.supp' '$RCP' "\$@"
END
chmod +x bin/checked
ln -sf checked bin/rcp
program=$dir/bin/checked limit=300
# Up to 3.19 it has no openat2, so that rcp's own walk is seen, no Landlock and no listxattrat, and says so.
no_report='unhandled amd64-linux syscall: (437|444|465)$|You may be able to write|Read the file README_MISSING|Nevertheless we consider|^--[0-9]+-- it at http'

copied() {
	rc_is 0
	same_tree src dst
	clean dst
	sum_is .status ok
}

up() { rcp --json -r "$@" src/. "box:$dir/dst/"; copied; }
down() { rcp --json -r "$@" "box:$dir/src/." dst/; copied; }

again() {
	up "$@"
	rcp --json -r --update "$@" src/. "box:$dir/dst/"
	copied
}

fails() {
	mkdir dst/a
	rcp --json src/a src/none "box:$dir/dst/a"
	rc_is 1
	err_has none
}

data src/a 3456789
data src/b 1048576
mkdir src/sub
for i in {1..20}; do data "src/sub/$i" $((i * 997)); done
ln src/a src/sub/link
ln -s a src/symbolic
for how in --transport=tcp '--transport=tcp --encrypt=never' --transport=ssh '-a --transport=tcp'; do
	# shellcheck disable=SC2086 # several words
	{
		t "up, $how" up $how
		t "down, $how" down $how
	}
done
t 'within the host' eval "rcp --json -a src/. dst/; copied"
t 'twice' again -p --transport=tcp
t 'with a name that is not there' fails
end
