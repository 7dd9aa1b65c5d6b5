# Looks of the move: at source, at dest as an ensemble, at the brokers.
ZXID='0x([0-7]?[0-9a-f]{1,15})'
none_open() { # every dest host answers, none is open and none opens within 4 s
  local host phase served answered=0; look $DEST
  for host in $DEST; do
    phase=$(value "$host.status" phase) && served=$(value "$host.status" served_s) || return
    case $phase in
      '') stop "$host does not answer; if GO was never sent: without $host"; return ;;
      open) stop "$host is open"; return ;;
      go | started | checked)
        [ -z "${WITHOUT:-}" ] || { stop "$host has its GO: nobody may be left out now"; return; }
        [ -z "$served" ] || [ $((${served%%.*} * 1000 + 5000)) -lt "${OPEN_MS:-0}" ] || { stop "$host opens by itself now"; return; } ;;
    esac
    answered=$((answered + 1))
  done
  # Those that are left out could still form an ensemble if they were a majority.
  [ $((answered * 2)) -gt "$DEST_COUNT" ] || { stop "only $answered of $DEST_COUNT answer"; return; }
  echo "OK none is open: $DEST"
}
word() { # ADDRESS PORT WORD: a four-letter word, asked from here
  timeout 3 bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf %s "$2" >&3 && cat <&3' "$1" "$2" "$3" 2>/dev/null
}
source_leader() { # NAME=ADDRESS of source's leader
  local one
  for one in $SOURCE; do
    ! word "${one#*=}" "$SOURCE_PORT" srvr | grep -Eqx 'Mode: (leader|standalone)' || { echo "$one"; return; }
  done
  stop "no source host says that it leads" >&2
}
zxid_of() { sed -n 's/^Zxid: //p'; } # as the server said it: look at it with `exact`
source_zxid() { # of source's leader
  local seen; seen=$(word "$LEADER_AT" "$SOURCE_PORT" srvr | zxid_of)
  exact "$LEADER_AT" Zxid "$ZXID" "$seen" >&2 && echo "$seen"
}
epoch() { exact "$1" Zxid "$ZXID" "$2" >&2 && echo $(($2 >> 32)); } # WHO-SAID-IT ZXID
learners() { # how many servers follow source's leader; nothing when it does not answer
  local seen; seen=$(word "$LEADER_AT" "$SOURCE_PORT" mntr | awk '$1 == "zk_learners" { n = $2 } $1 == "zk_followers" && n == "" { n = $2 } END { print n }')
  [ -z "$seen" ] || exact "$LEADER_AT" 'the count of its learners' "$NUMBER" "$seen" >&2 && echo "$seen"
}
owners() { # from a `dump`: session and path of every ephemeral under the chroot
  awk -v under="$CHROOT/" '/^0x[0-9a-f]+:/ { sub(":.*", ""); session = $0; next }
    /^[ \t]+\// { sub(/^[ \t]+/, ""); if (index($0, under) == 1) print session, $0 }' | sort
}
lists() { # the client lists of all servers, into cons.dest and cons.source
  local one
  for one in $DEST; do zkm "$one" word "$DEST_PORT" cons || return; done >cons.dest
  for one in $SOURCE; do word "${one#*=}" "$SOURCE_PORT" cons || return; done >cons.source
}
survey() { # [rehearsal]: who owns what under the chroot, where those sessions live, how long a hand may take
  local leader session timeout smallest='' away=''
  leader=$(source_leader) || return
  keep "LEADER=${leader%%=*}"; keep "LEADER_AT=${leader#*=}"
  word "$LEADER_AT" "$SOURCE_PORT" dump | owners >owners.before
  plain <owners.before
  [ -s owners.before ] || { stop "no ephemeral under $CHROOT: is dump allowed on $LEADER? is the chroot right?"; return; }
  keep "LEARNERS=$(learners)"
  [ "${LEARNERS:-0}" -ge "$DEST_COUNT" ] || { stop "source's leader counts '$LEARNERS' learners"; return; }
  if [ "${1:-}" = rehearsal ]; then # nobody is a client of dest yet: no session can be lost
    keep HAND_S=60; keep OPEN_MS=120000
  else
    lists || { stop "a server does not answer cons"; return; }
    for session in $(cut -d' ' -f1 owners.before | sort -u); do
      timeout=$(sed -n "s/.*[(,]sid=$session,.*,to=\([0-9]*\),.*/\1/p" cons.dest | head -n 1)
      ! grep -q "[(,]sid=$session," cons.source || timeout=''
      [ "$timeout" ] || away="$away $session"
      exact 'a server of dest' "the timeout of $session" "$NUMBER" "${timeout:-0}" || return
      if [ -z "$smallest" ] || [ "${timeout:-0}" -lt "$smallest" ]; then smallest=${timeout:-0}; fi
    done
    [ -z "$away" ] || { stop "not clients of dest alone:$away"; return; }
    keep "T_MS=$smallest"
    keep "HAND_S=$((T_MS * 2 / 3000 - WAY_BACK_S - FIND_DOOR_S))"; keep "OPEN_MS=$((T_MS / 2))"
    echo "T = $T_MS ms: from FENCE to SEAL you have $HAND_S s; after GO the hosts open by themselves within $OPEN_MS ms"
    [ "$HAND_S" -ge "$LEAST_HAND_S" ] || { stop "less than $LEAST_HAND_S s is too little for a hand: raise zookeeper.session.timeout.ms"; return; }
  fi
  keep "MORE_S=$((WAY_BACK_S < 3 ? WAY_BACK_S : 3))"; keep "FENCE_MS=$(((HAND_S + MORE_S) * 1000))"
  echo "OK survey: source is led by $LEADER ($LEADER_AT), $(wc -l <owners.before) ephemerals"
}
left_ms() { # until the cut has to end by itself: by the hosts' own lease, whatever the clock here says
  local host seen least=''; look $DEST
  for host in $DEST; do
    seen=$(value "$host.status" fence_timeout_s) || return
    case $seen in '' | - | permanent) seen=0 ;; esac
    if [ -z "$least" ] || [ "$seen" -lt "$least" ]; then least=$seen; fi
  done
  echo $(((least - MORE_S) * 1000))
}
in_time() { # SECONDS: so much must be left, or there is only the way back
  local left; left=$(left_ms) || return
  [ "$left" -ge $(($1 * 1000)) ] || { stop "$left ms are left: walk back now"; return; }
  echo "$left ms are left"
}
records() { # [LOG]: how often the logs of source's leader name the chroot, from that log on, or from the last but one; and that log
  local seen from="head -n 2"
  [ -z "${1:-}" ] || from="sed '/^$1\$/q'" # newest first, so a new log that begins meanwhile is counted too
  seen=$(ask "$LEADER" "cd $SOURCE_LOGS/version-2 && logs=\$(ls -t | grep '^log\.' | $from) && echo \$(echo \"\$logs\" | tail -n 1) \$(cat \$logs | tr -s '\\000' '\\n' | grep -aoE '$CHROOT(/|\$)' | wc -l)")
  exact "$LEADER" 'what its newest logs hold' "log[.][0-9a-f]{1,16} ($NUMBER)" "$seen" >&2 && echo "$seen"
}
until_drained() { until_said "$1" "$DEST" drain 'nothing outstanding' 'outstanding=0 .*'; } # SECONDS: on any dest host
until_zxid() { # SECONDS ZXID HOST...: until each has applied that transaction
  local end=$((SECONDS + $1)) wanted=$2 host bad seen; shift 2
  [ "$wanted" ] || { stop "no zxid to wait for"; return; }
  exact 'the caller' 'the zxid to wait for' "$ZXID" "$wanted" || return
  while :; do
    bad=''
    for host; do
      seen=$(zkm "$host" word "$DEST_PORT" srvr | zxid_of)
      [ -z "$seen" ] || exact "$host" Zxid "$ZXID" "$seen" || return
      [ "$seen" ] && [ $((seen)) -ge $((wanted)) ] || bad="$bad $host:${seen:-none}"
    done
    [ "$bad" ] || { echo "OK $*: at least $wanted"; return; }
    [ $SECONDS -lt $end ] || { stop "below $wanted:$bad"; return; }
    sleep 0.2
  done
}
until_mode() { until_said "$1" "${*:3}" "word $DEST_PORT srvr" "${*:3}: $2" "Mode: $2"; } # SECONDS PATTERN HOST...
until_dropped() { # SECONDS: source's leader counts no dest host any more
  local end=$((SECONDS + $1)) seen
  while :; do
    seen=$(learners) || return
    [ "$seen" ] && [ "$seen" -le $((LEARNERS - DEST_COUNT)) ] && { echo "OK $LEADER counts $seen learners"; return; }
    [ $SECONDS -lt $end ] || { stop "$LEADER still counts '$seen' learners, $LEARNERS before"; return; }
    sleep 0.2
  done
}
same_source() { # nothing of the chroot has been written to source since DRAIN
  [ "$(source_leader)" = "$LEADER=$LEADER_AT" ] || { stop "source has another leader than at the survey"; return; }
  local seen now at_z
  seen=$(source_zxid) && now=$(epoch "$LEADER" "$seen") && at_z=$(epoch DRAIN "$Z") || return
  [ "$now" = "$at_z" ] || { stop "source is in another epoch than Z $Z"; return; }
  now=$(records "${RECORDS%% *}") || return
  [ "$now" = "$RECORDS" ] || { stop "source's log names the chroot again: '$RECORDS' at DRAIN, '$now' now"; return; }
  echo "OK source has written nothing that names $CHROOT since DRAIN ($now)"
}
reformed() { # dest is one ensemble, holds Z, and every session owns what it owned
  local host mode leader='' followers=0 proven='' seen synced
  [ "${Z:-}" ] && [ -s owners.before ] || { stop "Z and the owners of before are not known here: whoever did SURVEY and DRAIN has them. Walk back, or do nothing: the hosts open by themselves"; return; }
  exact DRAIN Z "$ZXID" "$Z" || return
  for host in $DEST; do
    zkm "$host" word "$DEST_PORT" srvr >"$host.srvr" 2>&1
    mode=$(sed -n 's/^Mode: //p' "$host.srvr"); seen=$(zxid_of <"$host.srvr"); echo "$host: $mode $seen" | plain
    case $mode in leader) leader="$leader$host" ;; follower) followers=$((followers + 1)) ;; esac
    [ "$mode" = follower ] || continue
    # Followers of the first hour show the last transaction that came off the disks, until a new one is made.
    exact "$host" Zxid "$ZXID" "$seen" || return
    [ $((seen)) -ge $((Z)) ] || { stop "$host came up with $seen, below Z $Z"; return; }
    [ "$(epoch "$host" "$seen")" != "$(epoch DRAIN "$Z")" ] || proven=$host
  done
  [ "$followers" = $((DEST_COUNT - 1)) ] && [ "$leader" ] || { stop "no ensemble of one leader and $((DEST_COUNT - 1)) followers"; return; }
  [ "$proven" ] || { stop "all followers show dest's own epoch: whether the disks held Z $Z cannot be seen"; return; }
  synced=$(zkm "$leader" word "$DEST_PORT" mntr | awk '$1 == "zk_synced_followers" { print $2 }')
  exact "$leader" zk_synced_followers "($NUMBER)([.]0)?" "$synced" || return
  [ "${synced%%.*}" = $((DEST_COUNT - 1)) ] || { stop "$leader has $synced synced followers"; return; }
  zkm "$leader" word "$DEST_PORT" dump | owners >owners.after
  cmp -s owners.before owners.after || { diff owners.before owners.after | plain; stop "ephemerals or their owners differ (< before, > now)"; return; }
  echo "OK $leader leads $followers followers, $(wc -l <owners.after) ephemerals with the owners of before"
}
still_owned() { # every session of before owns what it owned; others may have come
  local leader
  [ -s owners.before ] || { stop "the owners of before are not known here: whoever did SURVEY has them. Look for expired sessions in the brokers' logs"; return; }
  leader=$(for host in $DEST; do ! zkm "$host" word "$DEST_PORT" srvr | grep -qx 'Mode: leader' || echo "$host"; done)
  [ "$leader" ] || { stop "nobody leads dest"; return; }
  zkm "$leader" word "$DEST_PORT" dump | owners >owners.after
  comm -23 owners.before owners.after >lost
  [ ! -s lost ] || { plain <lost; stop "these are gone"; return; }
  echo "OK $leader leads dest and every owner of before is there"
}
controller() { # the broker id that is the controller, by the owner of its znode
  local leader session id
  leader=$(source_leader) || return
  word "${leader#*=}" "$SOURCE_PORT" dump | owners >owners.now
  session=$(awk -v path="$CHROOT/controller" '$2 == path { print $1 }' owners.now)
  exact "$leader" 'the session of the controller' 0x[0-9a-f]+ "$session" || return
  id=$(sed -n "s|^$session $CHROOT/brokers/ids/||p" owners.now)
  exact "$leader" 'the id of the controller' "$NUMBER" "$id" && echo "$id"
}
in_sync() { # BROKER ADDRESS:PORT: no under-replicated partition
  local said
  if [ -z "${KAFKA_TOPICS:-}" ]; then
    read -r -p "look at under-replicated partitions with your own tools. None? (yes) " said; [ "$said" = yes ]; return
  fi
  said=$(ask "$1" "$KAFKA_TOPICS --bootstrap-server $2 --describe --under-replicated-partitions" 2>in_sync.err) || return
  [ -z "$said" ]
}
until_in_sync() { # SECONDS BROKER ADDRESS:PORT
  local end=$((SECONDS + $1)); shift
  until in_sync "$@"; do [ $SECONDS -lt $end ] || { stop "under-replicated partitions, or $1 does not answer. It said: $(tail -n 1 in_sync.err 2>/dev/null)"; return; }; sleep 1; done
  echo "OK in sync"
}
until_moved() { # SECONDS ID dest|source ADDRESS...: until the broker is registered by a session there, and not a client of the other
  local end=$((SECONDS + $1)) id=$2 there=$3 leader session address other why; shift 3
  if [ "$there" = dest ]; then other=source; else other=dest; fi
  while :; do
    why='' session=''
    leader=$(source_leader) && lists || why='a server does not answer'
    [ "$leader" ] && session=$(word "${leader#*=}" "$SOURCE_PORT" dump | owners | sed -n "s|^\([^ ]*\) $CHROOT/brokers/ids/$id\$|\1|p")
    [ -z "$session" ] || exact "$leader" "the session of broker $id" 0x[0-9a-f]+ "$session" || return
    [ "$session" ] && grep -q "[(,]sid=$session," "cons.$there" || why="registered by session '$session', which is no client of $there"
    for address; do ! grep -qF "/$address:" "cons.$other" || why="still a client of $other"; done
    [ "$why" ] || { echo "OK broker $id lives on $there, session $session"; return; }
    [ $SECONDS -lt $end ] || { stop "broker $id: $why"; return; }
    sleep 1
  done
}
one_line() { # BROKER: the two files differ in the one line zookeeper.connect
  ! cmp -s "$1.old" "$1.new" || { stop "$1: its file names dest already. Paste its last box, and its restart if that stops; then step STEP HOST for each other broker"; return; }
  diff "$1.old" "$1.new" | plain
  [ "$(diff "$1.old" "$1.new" | grep -c '^>')" = 1 ] && [ "$(wc -l <"$1.old")" = "$(wc -l <"$1.new")" ] || stop "$1: not one changed line; look at $1.old"
}
