#!/bin/sh
# Once, when the primary's folder is made: the shufflers' database, and two users.
set -eu
# No standby is there yet that could confirm these commits.
export PGOPTIONS="-c synchronous_commit=local"
psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username postgres --dbname postgres \
    --set shoal="$(cat /etc/postgresql/shoal-password)" \
    --set standby="$(cat /etc/postgresql/standby-password)" <<'SQL'
CREATE ROLE shoal LOGIN PASSWORD :'shoal';
CREATE ROLE standby LOGIN REPLICATION PASSWORD :'standby';
CREATE DATABASE shoal OWNER shoal;
REVOKE ALL ON DATABASE shoal FROM PUBLIC;
SELECT pg_create_physical_replication_slot('standby');
SQL
