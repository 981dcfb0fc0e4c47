// Package lockpolicy says in the status of each LockPolicy whether it is in force: Ready, or ClassConflict when an older
// policy claims one of its classes. What a policy means is decided in internal/policy; this is only the shell.
package lockpolicy
