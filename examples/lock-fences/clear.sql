DELETE FROM lock_attempts WHERE lock = :lock AND fence < :fence;
