#!/bin/bash
# Where things go: scp's rules for targets, the home directory, addresses, patterns.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
umask 022
data src/f 100000
data src/g 300
mkdir -p src/d/sub
data src/d/x 5000
data src/d/sub/y 70000

# ok COPY ORIGINAL ARG...: works, and makes the one from the other
ok() {
	local want=$1 from=$2

	shift 2
	rcp "$@"
	rc_is 0
	if [ -d "$from" ]; then same_tree "$from" "$want"; else same "$from" "$want"; fi
	clean dst
	clean home
}

# bad STATUS TEXT ARG...: fails, with this in its one line
bad() {
	local want=$1 text=$2

	shift 2
	rcp "$@"
	rc_is "$want"
	err_has "$text"
	clean dst
}

# ---- the table of rcp(1), for each of: up, down, local ----
for side in up down local; do
	case $side in
	up) S='' T="box:$dir/" ;;
	down) S="box:$dir/" T='' ;;
	local) S='' T='' ;;
	esac
	t "$side: f to d" ok dst/f src/f "${S}src/f" "${T}dst"
	t "$side: f to d/" ok dst/f src/f "${S}src/f" "${T}dst/"
	t "$side: f to new" ok dst/new src/f "${S}src/f" "${T}dst/new"
	t "$side: f to new/ fails" bad 1 'does not exist' "${S}src/f" "${T}dst/new/"
	two() {
		rcp "${S}src/f" "${S}src/g" "${T}dst"
		rc_is 0
		same src/f dst/f
		same src/g dst/g
		rcp "${S}src/f" "${S}src/g" "${T}dst/new"
		rc_is 1
		err_has 'must be a directory'
		absent dst/new
		rcp "${S}src/f" "${S}src/g" "${T}dst/f"
		rc_is 1
		err_has 'must be a directory'
		same src/f dst/f
	}
	t "$side: several" two
	t "$side: dir to d" ok dst/d src/d -r "${S}src/d" "${T}dst"
	t "$side: dir/ to d" ok dst/d src/d -r "${S}src/d/" "${T}dst"
	t "$side: dir to new" ok dst/new src/d -r "${S}src/d" "${T}dst/new"
	t "$side: dir to new/" ok dst/new src/d -r "${S}src/d" "${T}dst/new/"
	contents() {
		local way=${1:-}

		mkdir dst/d
		cp src/f dst/d/mine
		rcp -r ${way:+"$way"} "${S}src/d/." "${T}dst/d"
		rc_is 0
		same src/f dst/d/mine
		rm dst/d/mine
		same_tree src/d dst/d
		rcp -r ${way:+"$way"} "${S}src/d/." "${S}src/d" "${S}src/d/sub/.." "${T}dst/d"
		rc_is 0
		same_tree src/d dst/d/d
		rm -r dst/d/d
		same_tree src/d dst/d
		rcp -r ${way:+"$way"} "${S}src/d/sub/.." "${T}dst/new/"
		rc_is 0
		same_tree src/d dst/new
		clean dst
	}
	t "$side: what is in dir, by dir/." contents
	t "$side: what is in dir, by dir/., with -a" contents -a
	same_name() {
		mkdir -p src/o/d
		data src/o/f 300000
		data src/o/d/x 300000
		data src/o/d/new 300000
		rcp --json "${S}src/f" "${S}src/o/f" "${S}src/g" "${T}dst"
		rc_is 1
		err_has 'src/o/f: left out: what is copied from '
		same src/f dst/f
		same src/g dst/g
		is 'copied' "$(summary .files)" 2
		rcp -r "${S}src/d" "${S}src/o/d" "${T}dst"
		rc_is 1
		err_has 'src/o/d/x: left out: what is copied from '
		same src/d/x dst/d/x
		same src/o/d/new dst/d/new
		rcp -r "${S}src/d" "${S}src/d/" "${T}dst"
		rc_is 0
		err_has 'named twice: copied once'
		clean dst
		rm -r src/o
	}
	t "$side: two sources of one name" same_name
	t "$side: no such directory" bad 1 'No such file or directory' "${S}src/f" "${T}dst/no/such/f"
	over() {
		echo old >dst/f
		chmod 600 dst/f
		ok dst/f src/f "${S}src/f" "${T}dst/f"
	}
	t "$side: over an old file" over
done

home() {
	rcp src/f box:
	rc_is 0
	same src/f home/f
	rcp src/g box:sub
	rc_is 0
	same src/g home/sub
	mkdir home/deep
	rcp src/g box:deep/g2
	rc_is 0
	same src/g home/deep/g2
	rcp box:f dst/
	rc_is 0
	same src/f dst/f
	rcp 'box:~/sub' dst/
	rc_is 0
	same src/g dst/sub
	rcp src/g 'box:~/tilde'
	rc_is 0
	same src/g home/tilde
	rcp box:./f box:deep/../sub dst/
	rc_is 0
	clean home
	rm -rf home && mkdir home
}

bracketed() {
	has_ipv6 || { skip 'no IPv6 on loopback'; return; }
	rcp --json -6 src/f "[::1]:$dir/dst/"
	rc_is 0
	same src/f dst/f
	is 'an IPv6 address is used' "$(event transport '.detail | contains("[::1]")')" true
	rcp "$(id -un)@[::1]:$dir/src/g" dst/
	rc_is 0
	same src/g dst/g
	rcp --transport=ssh src/f "[::1]:$dir/dst/f6"
	rc_is 0
	same src/f dst/f6
}

four() {
	rcp --json -4 src/f "box:$dir/dst/"
	rc_is 0
	is 'an IPv4 address is used' "$(event transport '.detail | contains("127.0.0.1")')" true
}

user() {
	rcp src/f "$(id -un)@box:$dir/dst/"
	rc_is 0
	same src/f dst/f
	rcp src/f "nosuchuser_@box:$dir/dst/x"
	rc_is 3
	own_lines 1
	err_has 'Permission denied'
	absent dst/x
}

options() {
	rcp -P "$port" -i "$dir/key" -o BatchMode=yes -o "HostName=127.0.0.1" -S ssh src/f "elsewhere:$dir/dst/"
	rc_is 0
	same src/f dst/f
	rcp -P 1 src/f "box:$dir/dst/x"
	rc_is 3
}

globs() {
	mkdir dst/in dst/out
	for n in 1 2 3; do echo "$n" >"dst/in/$n.dat"; done
	echo no >dst/in/4.txt
	echo hidden >dst/in/.h.dat
	rcp "box:$dir/dst/in/*.dat" dst/out/
	rc_is 0
	is 'what came' "$(cd dst/out && echo *)" '1.dat 2.dat 3.dat'
	absent dst/out/.h.dat
	rcp "box:$dir/dst/in/?.t[x]t" "box:$dir/dst/i*/1.dat" dst/out/
	rc_is 0
	exists dst/out/4.txt
	rcp "box:$dir/dst/in/*.none" dst/out/
	rc_is 1
	err_has '*.none' 'No such file or directory'
	err_lines 1
	# several, and one name for them
	echo old >dst/one
	for t in dst/one dst/new; do
		rcp "box:$dir/dst/in/*.dat" "$t"
		rc_is 1
		err_has '*.dat: glob: stands for 3 names, and the target is no directory'
		err_lines 1
	done
	old dst/one
	absent dst/new
	rcp "box:$dir/dst/in/1.d*" dst/one
	rc_is 0
	same dst/in/1.dat dst/one
	# a name that is there as it is written is no pattern
	echo star >'dst/in/[z].dat'
	rcp "box:$dir/dst/in/[z].dat" dst/out/
	rc_is 0
	exists 'dst/out/[z].dat'
	# the local side has the user's own shell for that
	rcp 'dst/in/*.dat' "box:$dir/dst/out/"
	rc_is 1
}

two_hosts() {
	bad 2 'one host' "box:$dir/src/f" "box6:$dir/src/g" dst/
	bad 2 'one host' src/f "box:$dir/src/g" dst/
	bad 2 'between two other hosts' "box:$dir/src/f" box6:x
}

missing_one() {
	rcp "$@"
	rc_is 1
	err_lines 1
	err_has gone 'No such file or directory'
	same src/f dst/f
	same src/g dst/g
	clean dst
}

# Each way of copying a tree into itself has an end, and the source is as it was.
within() {
	rm -rf in
	mkdir -p in/a/b
	cp src/f in/a/f
	cp src/g in/a/b/g
	cp -r in/a in.was
	cd in || return
	limit=20 rcp --json -r "$1" "$2"
	cd ..
	rc_is "$3"
	[ -z "$4" ] || err_has "$4"
	if [ -n "$5" ]; then
		same src/g "in/$5/b/g"
		same src/f "in/$5/f"
		rm -r "in/$5"
	fi
	same_tree in.was in/a
	is 'what is there' "$(ls -A in)" a
	rm -rf in in.was
}

into_itself() {
	within a a/new 0 '' a/new
	within a a/b/new 0 '' a/b/new # listed before it is made, or after: then it is skipped
	within a a 1 "a: can't be copied into itself" ''
	within a/. a 1 "a/.: can't be copied into itself" ''
	within . a 0 'a: skipped: the target of this very copy' ''
}

itself() {
	cp src/f dst/f
	# harmless: it is replaced by a copy of itself
	rcp dst/f dst/f
	same src/f dst/f
	rcp dst/f "box:$dir/dst/f"
	same src/f dst/f
	rcp "box:$dir/dst/f" dst/
	same src/f dst/f
	clean dst
}

t 'below the home directory' home
t '[::1]:path' bracketed
t '-4' four
t 'user@host:' user
t '-P -i -o -S' options
t 'patterns on the other host' globs
t 'two hosts at once' two_hosts
t 'one of several is missing, up' missing_one src/f src/gone src/g "box:$dir/dst/"
t 'one of several is missing, down' missing_one "box:$dir/src/f" "box:$dir/src/gone" "box:$dir/src/g" dst/
t 'one of several is missing, local' missing_one src/f src/gone src/g dst/
t 'a file onto itself' itself
t 'a directory into itself' into_itself
end
