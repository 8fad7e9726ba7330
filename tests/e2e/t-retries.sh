#!/bin/bash
# A connection that is lost is made again within the run: what is done is not sent again, what is partly
# there goes on. And a directory that a lost copy made is gone on with by the same command, not copied into.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
write_watched
data src/f 20971527
mkdir src/tree src/tree/sub
for i in {1..40}; do data "src/tree/f$i" $((i * 7001 % 300000 + 100000)); done
for i in {1..20}; do data "src/tree/sub/small$i" $((i * 100)); done
slow=--bwlimit=2M
beyond=1000000

ways() {
	if [ "$1" = up ]; then
		from=src/$2 to=box:$dir/dst/$3
	else
		from=box:$dir/src/$2 to=dst/$3
	fi
}

warned() { grep -q "connecting again in 1 s, try 1 of $1" err; }

# killed WHO DIRECTION ARG...
killed() {
	local who=$1 way=$2

	shift 2
	ways "$way" f f
	echo old >dst/f
	start_watched "$slow" "$@" "$from" "$to" || return
	if [ "$who" = ssh ]; then kill -9 "$ssh"; else kill -9 "$server"; fi
	reap 60 "$copy" || fail 'no end'
	rc_is 0
	# the warning; and what the sink says of a partial file that it had no time to claim
	if [ "$who$way" = serverup ]; then own_lines 2; err_has 'without a journal was there: started over'; else own_lines 1; fi
	err_has 'rcp: warning: box: ' 'connecting again in 1 s, try 1 of 3'
	sum_is .retries 1
	sum_is .warnings 1
	sum_is .exit_code 0
	sum_is .crc32 "$(crc32_of src/f)"
	# A server that could still write its journal did so.
	[ "$who$way" = serverup ] || is 'bytes resumed' "$(summary '.resumed_bytes > 0')" true
	same src/f dst/f
	clean dst
}

# A tree that gets a new name: each file is told once, and nothing is put into a directory within.
tree() {
	ways "$1" tree new
	start_watched "$slow" -r "$from" "$to" || return
	kill -9 "$ssh"
	reap 60 "$copy" || fail 'no end'
	rc_is 0
	sum_is .retries 1
	sum_is .files 60
	is 'files told' "$(jq -r 'select(.event == "file") | .name' out | sort | uniq -c | awk '$1 != 1' | wc -l)" 0
	is 'files told' "$(jq -r 'select(.event == "file") | .name' out | wc -l)" 60
	same_tree src/tree dst/new
	is 'the target' "$(ls -A dst)" new
}

# The same by hand, and where the source is another one it goes into the directory, as with scp.
tree_again() {
	ways "$1" tree new
	start_watched "$slow" --retries=0 -r "$from" "$to" || return
	kill -9 "$ssh"
	reap 20 "$copy" || fail 'no end'
	rc_is 6
	await 15 server_ended || fail 'the server did not end within 15 s'
	rcp --json -r "${from%tree}tree/sub" "$to"
	rc_is 0
	same_tree src/tree/sub dst/new/sub
	if [ "$1" = up ]; then # another tree, and the same word for it
		mkdir -p elsewhere/src/tree
		echo else >elsewhere/src/tree/else
		cd elsewhere || return
		rcp --json -r "$from" "$to"
		cd ..
		rc_is 0
		same elsewhere/src/tree/else dst/new/tree/else
		rm -r elsewhere dst/new/tree
	fi
	rcp --json -r "$from" "$to"
	rc_is 0
	same_tree src/tree dst/new
	is 'the target' "$(ls -A dst)" new
	rcp --json -r "$from" "$to" # complete: from now on it is a directory to copy into
	rc_is 0
	same_tree src/tree dst/new/tree
}

# no_way_back: what is there to log in to is gone when the connection is.
lose_for_good() {
	start_watched "$slow" "$@" src/f "box:$dir/dst/f" || return
	mv bin/watched bin/gone
	kill -9 "$server"
}

given_up() {
	echo old >dst/f
	lose_for_good --retries=2 || return
	reap 30 "$copy" || fail 'no end'
	mv bin/gone bin/watched
	rc_is 6
	err_has 'try 1 of 2' 'try 2 of 2' 'run the same command again'
	sum_is .status link
	sum_is .retries 2
	sum_is .resumable true
	old dst/f
}

interrupted() {
	local start

	lose_for_good --retries=9 || return
	await 20 grep -q 'try 3 of 9' err || fail 'no third try' # 4 s until it begins
	start=$SECONDS
	kill -INT "$copy"
	reap 10 "$copy" || fail 'no end'
	mv bin/gone bin/watched
	[ $((SECONDS - start)) -lt 3 ] || fail 'it waited on'
	rc_is 130
	err_has 'interrupted'
}

# The first connection has to be made by the user's own hand.
not_at_first() {
	rcp --json --rcp-path=not-there src/f "box:$dir/dst/f"
	rc_is 3
	sum_is .retries 0
}

for way in up down; do
	t "server killed, $way" killed server $way
	t "ssh killed, $way" killed ssh $way
	t "ssh killed, $way, ssh" killed ssh $way --transport=ssh
	t "a tree under a new name, $way" tree $way
	t "a tree under a new name, $way, by hand" tree_again $way
done
t 'no way back' given_up
t 'interrupted while it waits' interrupted
t 'no retries where nothing was lost' not_at_first
end
