// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Unread says why facts could not be had, and what helps. The zero value: they were.
type Unread struct{ Why, Hint string }

// Facts is what is known of an installation. Pre leaves out what is there only after installing.
type Facts struct {
	Now time.Time
	Pre bool

	Server     Server
	CRDs       CRDs
	Admission  Admission
	Fence      Fence
	Operator   Operator
	Rights     Rights // of the operator's account
	Install    Rights // of who runs the check; looked at with Pre only
	Webhook    Webhook
	Partitions Partitions
	Elsewhere  Elsewhere
	Policies   Policies
	NATS       NATS
	Redis      Redis
	Manifests  []Manifest
}

// Clock is what a server's clock shows, beside that of this machine.
type Clock struct {
	Unread
	Offset time.Duration // ahead of this machine
	Error  time.Duration // Offset is wrong by so much at most
}

// Server is the API server.
type Server struct {
	Unread
	Version string // as v1.33.2
	Clock   Clock
}

// CRDs are the definitions of the kinds.
type CRDs struct {
	Unread
	Items []CRD
}

// CRD is one definition.
type CRD struct {
	Name        string
	Missing     bool
	Established bool
	// Differs are paths at which it is not as this plugin has it.
	Differs []string
}

// Admission is the shipped admission policies.
type Admission struct {
	Unread
	Items []AdmissionPolicy
}

// AdmissionPolicy is a ValidatingAdmissionPolicy. Unread is for what it asks only.
type AdmissionPolicy struct {
	Unread
	Name     string
	Missing  bool
	Ignores  bool       // failurePolicy is Ignore
	Narrowed bool       // it does not ask what the shipped one asks
	Bindings [][]string // validationActions of each binding for all that it looks at
	// PartBindings are those of bindings for a part of that.
	PartBindings [][]string
}

// Fence is what became of a dry run that lowers the fence of a run.
type Fence struct {
	Unread
	Run   string
	Taken bool   // the API server would have stored it
	Said  string // why it was refused
}

// Operator is the Deployment.
type Operator struct {
	Unread
	Missing         bool
	Wanted, Ready   int32
	Rolling         bool     // not all replicas are of the template
	Images          []string // of the pods, each once
	PodsUnread      Unread
	Settings        Settings
	SettingsUnknown bool
	Account         string // name of its ServiceAccount; empty: not known
}

// Settings are arguments of the operator.
type Settings struct {
	Leader        bool // --ownership=leader
	StreamReplica int
	Storage       int64 // bytes of --nats-storage; 0: streams have no limits
	Memory        bool
	NATSURL       string
	RedisAddrs    string
}

// Rights is what access reviews answered.
type Rights struct {
	Unread
	Who     string
	Asked   int
	Missing []string
}

// Webhook is the ValidatingWebhookConfiguration, and a dry run through it.
type Webhook struct {
	Unread
	Missing     bool
	Ignores     bool // failurePolicy is Ignore
	Broken      string
	Authorities []Authority
	// Endpoints are those of its Service that are called; -1: not known.
	Endpoints int
	// Classes are those of the runs that it is asked for; nil: all. Asked says why that
	// is not known.
	Classes []string
	Asked   Unread
	Call    Call
}

// Authority is a certificate of the CA bundle.
type Authority struct {
	Subject  string
	From, To time.Time
}

// Call is a dry run of a create.
type Call struct {
	Unread
	// Unreached is the error of the API server that could not call the webhook.
	Unreached string
}

// Partitions is who owns what.
type Partitions struct {
	Unread
	Leader  bool
	Total   int
	Unowned []int
	Owners  []Owner
}

// Owner is a replica that owns partitions.
type Owner struct {
	Name     string
	NoLease  bool
	Renewed  time.Time
	Duration time.Duration
}

// Elsewhere are Leases of the kind that replicas have, in other namespaces than that of the
// operator. Whoever may edit in a namespace can make one.
type Elsewhere struct {
	Unread
	Replicas []Replica
	// Entitled are those of their namespaces of which the operator's account may write the status
	// of all runs: an administrator of the cluster gave it that. Asked says why that is not known.
	Entitled []string
	Asked    Unread
}

// Replica is one that has a Lease.
type Replica struct {
	Namespace string
	Owner
}

// Policies are all LockPolicies of the cluster.
type Policies struct {
	Unread
	Items []v1alpha1.LockPolicy
}

// NATS is what a server answered.
type NATS struct {
	Unread
	Version     string
	NoJetStream string // why JetStream cannot be used
	MaxPayload  int64
	Streams     []Stream
	Homes       []string // namespaces of operators that the streams name, each once
	Consumers   Consumers
	User        User
	Clock       Clock
}

// Stream is one of those that the operator makes.
type Stream struct {
	Unread
	Name     string
	Missing  bool
	Replicas int
	Behind   []string // replicas that are offline or lag behind
	Leader   bool     // it has one
	Drifts   []string
	Slight   []string // drifts that do no harm
}

// Consumers are those of results, one for each partition.
type Consumers struct {
	Unread
	Wanted  int
	Missing []string
}

// User is what NATS says of the user that asked.
type User struct {
	Unread
	Name    string
	Missing []string // subjects that an operator publishes to, and this user may not
}

// Redis is what the servers answered.
type Redis struct {
	Unread
	Nodes   []RedisNode
	Latency Latency
	Clock   Clock
}

// RedisNode is a server that takes writes.
type RedisNode struct {
	Addr, Version string
	Eviction      string // maxmemory-policy
	Replica       bool   // it follows another one
	Replicas      int    // that follow it
	AOF           bool
	Broken        string // a write to disk that failed
}

// Latency is how long a read-only script took.
type Latency struct {
	Unread
	P99     time.Duration
	Samples int
}

// Manifest is an object of a file that is judged with the cluster.
type Manifest struct {
	Unread
	Name    string // as LockPolicy/batch
	Refused string // by the API server, in a dry run, or by what the operator would do
	Open    bool   // a part of its work is that of a Workflow, which was not looked at
	Idle    string // fields that do nothing; "": none
	Policy  *v1alpha1.LockPolicy
}
