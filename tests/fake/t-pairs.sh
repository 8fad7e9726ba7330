#!/usr/bin/env bash
# Two ends of a verbs link in two processes, over software verbs: every byte, ends that die, close early
# or lie. As tests/link/verbs-lab.sh, without a kernel. TAP.
# usage: t-pairs.sh VERBS-PAIR
set -u
# verbs-pair forks when software verbs have their threads already.
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}die_after_fork=0"
pair=${1:?verbs-pair} n=0 bad=0
few=(--chunks=60 --bytes=131072 --slots=8)

# good OPTION...: it ends well.
good() {
	local said status=0

	n=$((n + 1))
	said=$(RCP_FAKE=pairs-$$-$n timeout 60 "$pair" "$@" 2>&1) || status=$?
	if [ "$status" = 0 ] && [[ $said != *'fake verbs'* ]]; then
		echo "ok $n - $RCP_FAKE_NICS: $*"
	else
		bad=1
		tail -n 8 <<<"$said" | sed 's/^/# /'
		echo "not ok $n - $RCP_FAKE_NICS: $*: status $status"
	fi
}

for RCP_FAKE_NICS in 'roce2 rto=500' 'ib addr=1 rto=500' iwarp 'iwarp imm=1'; do
	export RCP_FAKE_NICS
	for role in '' --sink-initiates; do
		for how in '' --pair --kill=source --kill=sink --bad-proof --close-early; do
			# shellcheck disable=SC2086 # empty is no option
			good "${few[@]}" $role $how --varying --hold
		done
	done
	for evil in chunk-range chunk-generation chunk-long chunk-huge chunk-short credit hello junk nothing \
		credit-range credit-twice credit-all chunk; do
		good "${few[@]}" --hold --evil=$evil
	done
	[ "$RCP_FAKE_NICS" = iwarp ] || for evil in imm-range imm-generation imm-short imm-empty; do
		good "${few[@]}" --hold --evil=$evil
	done
done
export RCP_FAKE_NICS='ib rto=500'
good "${few[@]}" --oob --varying --hold
good "${few[@]}" --oob --sink-initiates --pair
good "${few[@]}" --oob --close-early
good "${few[@]}" --oob --kill=sink
RCP_FAKE_NICS=roce2
good --slots=1 --chunks=40 --bytes=65536
good --slots=64 --sink-slots=4 --chunks=60 --bytes=65536
good --slots=4 --sink-slots=64 --chunks=60 --bytes=65536
good --bytes=4096 --chunks=3000 --slots=64 --varying --hold
good --bytes=4096 --chunks=3000 --slots=3
good "${few[@]}" --ipv6
echo "1..$n"
exit $bad
