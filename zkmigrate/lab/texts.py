"""Hold the files that are the same on all lab hosts, and the list of units that lab hosts do not run."""

MASKED_UNITS = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "dpkg-db-backup.timer",
    "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "getty@tty1.service",
    "systemd-ask-password-console.path", "systemd-ask-password-wall.path", "systemd-logind.service",
    "systemd-pstore.service",
)  # fmt: skip
"""The systemd units that a lab host does not need; with them a host boots ten times slower.

Each of the two path units would keep an inotify instance open, of which Linux gives an account 128.
"""


LOG4J = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p [%t] %c{1}: %m%n
"""

LOG4J_2 = """rootLogger.level=INFO
rootLogger.appenderRef.stdout.ref=stdout
appender.stdout.type=Console
appender.stdout.name=stdout
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=%d{ISO8601} %p [%t] %c{1}: %m%n
"""

LOGBACK = """<configuration>
  <appender name="stdout" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %p [%t] %logger{0}: %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="stdout"/></root>
</configuration>
"""

SSHD = """HostKey /etc/ssh/ssh_host_ed25519_key
AllowUsers ops
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
UseDNS no
MaxStartups 100
MaxSessions 64
"""

JOURNALD = """[Journal]
Storage=persistent
SystemMaxUse=128M
SystemMaxFileSize=16M
RateLimitIntervalSec=0
"""
