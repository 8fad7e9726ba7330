#!/usr/bin/env bash
# What NICs and networks do, by script, in whole copies both ways: the right status, one error at most,
# and where it is not whole a second run completes it.
# usage: t-faults.sh up|down

# shellcheck source=tests/fake/fabric.sh
. "${FABRIC_LIB:?tests/fake/fabric.sh}"

nics='roce2 rto=1000'

way=${1:?up or down}

# at ROLE RULES: the source's or the sink's end, here or there, or both.
at() {
	here_faults='' there_faults=''
	case $1$way in
	sourceup | sinkdown | here*) here_faults=$2 ;;
	sinkup | sourcedown | there*) there_faults=$2 ;;
	both*) here_faults=$2 there_faults=$2 ;;
	esac
}

go() {
	# Few slots: the fault strikes while there is more to come.
	set -- --slots=4 "$@"
	if [ "$way" = up ]; then copy "$@" src/f "box:$dir/dst/f"; else copy "$@" "box:$dir/src/f" dst/f; fi
}

complete() {
	rc_is 0
	there_rc_is 0
	same src/f dst/f
	clean dst
	is 'errors told' "$(summary '.errors | length')" 0
}

# It goes on by itself: healed TRANSPORT TEXT ROLE RULES OPTION... (TEXT: on standard error; '' for nothing there)
healed() {
	local transport=$1 text=$2

	here=$nics there=$nics
	at "$3" "$4"
	go "${@:5}"
	complete
	sum_is .transport "$transport"
	if [ -n "$text" ]; then err_has "$text"; else err_lines 0; fi
}

# It ends with one error; a run without the fault completes: ended STATUS TEXT ROLE RULES OPTION...
ended() {
	local status=$1 text=$2

	here=$nics there=$nics
	at "$3" "$4"
	go "${@:5}"
	rc_is "$status"
	there_rc_is "$status"
	is 'errors told' "$(summary '.errors | length')" 1
	event error .reason | grep -qF -- "$text" || fail "the error is: $(event error .reason)"
	[ -e dst/f ] && same src/f dst/f
	only_partials dst
	here_faults='' there_faults=''
	go
	complete
	over roce-v2
}

case_() { t "$way: $1" "${@:2}"; }
# The same where no other way is left.
alone() { case_ "$@" --transport=rdma --retries=0; }

# Nothing but rdma_cm gets through: it never was RDMA, and no link is lost.
silent() {
	healed tcp '' here 'retry 1+'
	[[ ${sums[fallback_reason]} == *'retries exceeded'* ]] || fail "the reason is ${sums[fallback_reason]}"
}

begin_fabric
data src/f 9876543

# ---- completions ----
case_ 'a bad status' healed rdma 'link lost' source 'wc:send 5 RETRY_EXC'
case_ 'a bad status of a receive' healed rdma 'link lost' sink 'wc:recv 5 REM_OP'
alone 'bad statuses' ended 6 '' sink 'wc:recv 5+ GENERAL'
case_ 'a flush storm, source' healed rdma 'the peer closed the connection' source 'flush 5'
case_ 'a flush storm, sink' healed rdma 'the peer closed the connection' sink 'flush 5'
case_ 'a late completion' healed rdma '' source 'wc-late:send 5 300'
case_ 'a late receive' healed rdma '' sink 'wc-late:recv 5 300'
case_ 'a lost receive' healed rdma '' sink 'wc-lost:recv 5'
[ "$way" = down ] || case_ 'a lost completion' healed rdma 'has not completed what it was given' source 'wc-lost:send 5'
# The next link is up before the source, which waits for the completion, lets go of this one.
let_go() {
	here=$nics there=$nics
	at source 'wc-lost:send 3'
	mkdir -p src/many
	for n in {1..20}; do data "src/many/$n" $((n * 20011)); done
	copy -r --slots=4 --chunk-size=16M "box:$dir/src/many" dst/
	rc_is 0
	there_rc_is 0
	same_tree src/many dst/many
	sum_is .transport rdma
	sum_is .retries 1
	err_has 'trying another way'
	clean dst
	rm -r src/many dst/many
}
[ "$way" = up ] || case_ 'a lost completion, and the next link is up' let_go

# ---- the way there and back ----
case_ 'silence' healed rdma 'link lost' source 'retry 4'
nics='roce2 rto=300'
case_ 'silence for ever' healed tcp 'link lost' source 'retry 4+'
alone 'silence, and no other way' ended 6 '' source 'retry 4+'
case_ 'silence from the start' silent
alone 'silence from the start, and no other way' ended 3 'retries exceeded' here 'retry 1+'
nics='roce2 rto=1000'
case_ 'access refused' healed rdma 'link lost' sink 'access 3'
alone 'access always refused' ended 6 '' sink 'access 1+'
case_ 'receiver not ready, once' healed rdma '' sink 'rnr 3'
case_ 'receiver never ready' healed tcp 'link lost' both 'rnr 3+'
alone 'receiver never ready, and no other way' ended 6 '' both 'rnr 3+'
case_ 'port down' healed tcp 'link lost' source 'port-down 5'
case_ 'port down at the sink' healed tcp 'link lost' sink 'port-down 5'
alone 'port down, and no other way' ended 6 '' source 'port-down 3'
case_ 'device removed' healed tcp 'link lost' source 'fatal 5'
case_ 'device removed at the sink' healed tcp 'link lost' sink 'fatal 5'
alone 'device removed, and no other way' ended 6 '' sink 'fatal 3'

# ---- bytes ----
resent() {
	healed "$@"
	[ "${sums[resent_chunks]}" -gt 0 ] || fail 'nothing was sent again'
}
case_ 'a bit of the payload' resent rdma '' sink 'flip 3 5000'
case_ 'a bit of the header' resent rdma '' sink 'flip 3 20'
case_ 'a bit every time' ended 4 'wrong CRC 4 times' sink 'flip 3+ 5000'
case_ 'a write placed twice' resent rdma '' sink 'twice 1' --slots=2
case_ 'slots out of turn' healed rdma '' sink 'swap 3'
# A write to where nothing is expected meets whoever reads there: the thread sanitizer is right, and it is meant.
[[ ${E2E_SANITIZED:-} == *thread* ]] || case_ 'the data of another slot' ended 3 'broke the protocol' sink 'forge 3 0x0100'
case_ 'the data of another generation' ended 3 'broke the protocol' sink 'forge 3 0x10000'

# ---- rdma_cm ----
for e in here:ADDR_RESOLVED here:ROUTE_RESOLVED here:ESTABLISHED there:CONNECT_REQUEST both:DISCONNECTED; do
	case_ "${e#*:} lost" healed rdma '' "${e%:*}" "cm:${e#*:} 1 lost"
	case_ "${e#*:} late" healed rdma '' "${e%:*}" "cm:${e#*:} 1 late 400"
done
case_ 'ESTABLISHED late there' healed rdma '' there 'cm:ESTABLISHED 1 late 400'
for f in REQ REP RTU; do case_ "$f lost" healed rdma '' both "cm:$f 1 lost"; done
case_ 'rejected' healed rdma '' here 'cm:ESTABLISHED 1 rejected 28'
case_ 'rejected always' healed tcp '' here 'cm:ESTABLISHED 1+ rejected 28'
alone 'rejected, and no other way' ended 3 'nothing listens there' here 'cm:ESTABLISHED 1+ rejected 28'
case_ 'private data cut' healed rdma '' both 'private 1 20'
case_ 'private data always cut' healed tcp '' both 'private 1+ 20'
case_ 'private data padded' healed rdma '' both 'private 1+ 196'
nics=iwarp
case_ 'iWARP: receiver not ready' healed rdma 'link lost' sink 'rnr 3'
case_ 'iWARP: access refused' healed rdma 'link lost' sink 'access 3'
case_ 'iWARP: rejected' healed rdma '' here 'cm:ESTABLISHED 1 rejected -111'
case_ 'iWARP: private data padded' healed rdma '' both 'private 1+ 255'
case_ 'iWARP: rdma_connect takes its time' healed rdma '' both 'slow:rdma_connect 1+ 500'
end
