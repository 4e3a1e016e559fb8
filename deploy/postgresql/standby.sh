#!/bin/sh
# The standby: a copy of the primary, made once, that follows it.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    PGPASSWORD=$(cat /etc/postgresql/standby-password)
    export PGPASSWORD
    until pg_basebackup --pgdata="$PGDATA" --write-recovery-conf --slot=standby --checkpoint=fast \
        --dbname="host=$PRIMARY port=${PRIMARY_PORT:-5432} user=standby application_name=standby \
sslmode=verify-full sslrootcert=/etc/postgresql/ca.pem"; do
        find "$PGDATA" -mindepth 1 -delete # half a copy
        sleep 2
    done
    chmod 0700 "$PGDATA"
fi
exec postgres -D "$PGDATA" -c config_file=/etc/postgresql/postgresql.conf
