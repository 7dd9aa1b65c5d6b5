# The functions of this page, for bash. They only look; what changes a host stands in the blocks below.
keep() { # NAME=VALUE: set it, and know it again after this terminal is lost
  printf '%s=%q\n' "${1%%=*}" "${1#*=}" >>kept
  printf -v "${1%%=*}" %s "${1#*=}"
}
next() { keep "LEG=$(date +%s)"; } # part of every operation id from here on: no id comes twice
plain() { LC_ALL=C tr -cd '\t\n\040-\176'; } # a host's text for the screen: no control character is left in it
stop() { printf 'STOP: %s\n' "$*" | plain; return 1; }
# Nothing that a host said is counted with, or put into a command, before it has been looked at by this.
NUMBER='0|[1-9][0-9]{0,9}'
PHASE='idle|armed|fenced|cut|stopped|sealed|go|started|checked|open'
exact() { # HOST WHAT FORM VALUE: stop unless the whole value has that form
  local LC_ALL=C form="^($3)\$"
  [[ $4 =~ $form ]] || stop "$1 gave '${4:0:80}' as $2. No such value exists: look at that host before you go on"
}
left_out() { case " ${WITHOUT:-} " in *" $1 "*) return 0 ;; esac; return 1; } # HOST
without() { # HOST: leave a dest host out that does not answer; for a way back before GO, for nothing else
  keep "WITHOUT=${WITHOUT:-} $1"
  DEST=$(for host in $ALL; do left_out "$host" || printf '%s ' "$host"; done); DEST=${DEST% }
  echo "now without:$WITHOUT; everybody ends that"
}
everybody() { keep WITHOUT=; DEST=$ALL; } # no host is left out any more
at() { # HOST COMMAND...: ssh HOST COMMAND; what it says is shown, and stays in HOST.out
  local host=$1; shift
  ! left_out "$host" || return 0
  ssh -n -F ssh.conf "$host" "$@" >"$host.out" 2>&1
  echo "exit=$?" >>"$host.out"
  sed "s/^/$host: /" "$host.out" | plain
}
give() { # FILE HOST COMMAND...: the same, with FILE as the command's input
  local file=$1 host=$2; shift 2
  ! left_out "$host" || return 0
  ssh -F ssh.conf "$host" "$@" <"$file" >"$host.out" 2>&1
  echo "exit=$?" >>"$host.out"
  sed "s/^/$host: /" "$host.out" | plain
}
went() { # PATTERN HOST...: wait for all; each must have said a line like that
  local pattern=$1 host bad=''; shift; wait
  for host; do left_out "$host" || grep -Eq -- "$pattern" "$host.out" || bad="$bad $host"; done
  [ -z "$bad" ] || { stop "not said by$bad: $pattern"; return; }
  echo "OK $*"
}
say() { # PATTERN HOST...: the same, and each must have ended with exit code 0
  local pattern=$1 host bad=''; shift; wait
  for host; do left_out "$host" || grep -qx 'exit=0' "$host.out" || bad="$bad $host"; done
  [ -z "$bad" ] || { stop "failed on$bad; wanted: $pattern"; return; }
  went "$pattern" "$@"
}
never() { # PATTERN HOST...: none may have said that
  local pattern=$1 host; shift
  for host; do ! grep -E -- "$pattern" "$host.out" || { stop "$host said that"; return; }; done | plain
  return "${PIPESTATUS[0]}"
}
ask() { # HOST COMMAND...: what the host says, for us to read; its complaints go to the screen
  { ssh -n -F ssh.conf "$@" 2>&1 >&3 3>&- | plain >&2; return "${PIPESTATUS[0]}"; } 3>&1
}
zkm() { local host=$1; shift; ask "$host" sudo -n "$ZKM" --run "$RUN" "$@"; } # HOST READING-VERB...
value() { # HOST.FILE KEY: what the host said of it, nothing when it said nothing
  local seen form; seen=$(sed -n "s/^$2=//p" "$1")
  case $2 in
    phase) form=$PHASE ;;
    served_s) form="($NUMBER)[.][0-9]" ;;
    fence_timeout_s) form="$NUMBER|-|permanent" ;;
    boot_id) form='[0-9a-f-]{36}' ;;
    stamp) form='[0-9a-f]{64}' ;;
    *) stop "no form is known for $2" >&2; return ;;
  esac
  [ -z "$seen" ] || exact "${1%.*}" "$2" "$form" "$seen" >&2 && echo "$seen"
}
look() { # HOST...: status of each, into HOST.status
  local host
  for host; do zkm "$host" status >"$host.status" 2>&1 & done
  wait
}
stand() { # where every dest host stands, one line each
  local host; look $DEST
  for host in $DEST; do
    echo "$host: $(grep -E '^(phase|lapsed|fence_entries|fence_timeout_s|cut_entries|cut_timeout_s|unit_state|finisher|served_s)=' "$host.status" | tr '\n' ' ')"
    grep -q '^phase=' "$host.status" || sed "s/^/$host: /" "$host.status"
  done | plain
}
until_said() { # SECONDS 'HOSTS' 'READING-VERB...' WORDS PATTERN...: until what every host answers has all these lines
  local end=$((SECONDS + $1)) hosts=$2 verb=$3 words=$4 host want bad; shift 4
  while :; do
    for host in $hosts; do zkm "$host" $verb >"$host.said" 2>&1 & done; wait
    bad=''
    for host in $hosts; do
      for want; do grep -Eqx -- "$want" "$host.said" || bad="$bad $host:$want"; done
    done
    [ "$bad" ] || { echo "OK $words"; return; }
    [ $SECONDS -lt $end ] || { stand; stop "failed:$bad"; return; }
    sleep 0.2
  done
}
until_like() { until_said "$1" "$2" status "$2: ${*:3}" "${@:3}"; } # SECONDS 'HOSTS' KEY=PATTERN...: as their status says
fill() { # FILE KEY: type a value that this page does not hold
  read -r -s -p "$2 in $1: " TYPED; echo; export TYPED
  awk -v key="$2" 'index($0, key "=(hidden)") == 1 { print key "=" ENVIRON["TYPED"]; next } { print }' "$1" >"$1.typed" && mv "$1.typed" "$1"
  unset TYPED
}
digest() { sha256sum <"$1" | cut -d' ' -f1; }
block() { # STEP WAY NUMBER HOST: that block of this page
  awk -v step=" step=$1 " -v way=" way=$2 " -v number="$3" -v host="${4:-}" '
    /^```sh / { on = index($0 " ", step) && index($0 " ", way) && (host == "" || $0 ~ "host=([^ ]*,)?" host "[, ]"); if (on && seen++ != number) on = 0; next }
    /^```/ { on = 0 }
    on' "$RUNBOOK"
}
run_blocks() { # STEP WAY HOST: one after the other, to the first STOP
  local number=0 text
  while text=$(block "$1" "$2" "$number" "$3"); [ "$text" ]; do
    echo "-- $1 $2, block $((number + 1))"; printf '%s\n' "$text"; echo "--"
    eval "$text" || { echo "STOPPED in $1 $2, block $((number + 1))"; return 1; }
    number=$((number + 1))
  done
  [ "$number" -gt 0 ] || stop "no block step=$1 way=$2 ${3:+for $3 }in $RUNBOOK"
}
step() { # STEP [HOST]: what you would paste for it, as it stands on this page
  case ${WITHOUT:-}:$1 in :* | *:hold.*) run_blocks "$1" forward "${2:-}" ;; *) stop "left out:$WITHOUT; forward is for everybody" ;; esac
}
back() { run_blocks "$1" back "${2:-}"; }    # STEP [HOST]: its way back
