{{/* All names begin with syncopate, whatever the release is called: there is one operator in a cluster, since its CRDs and roles are
the cluster's, and its documentation names its objects. A second release is refused by Helm, which finds them owned. */}}

{{- define "syncopate.labels" -}}
app.kubernetes.io/name: syncopate
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "syncopate.selector" -}}
app.kubernetes.io/name: syncopate
app.kubernetes.io/component: manager
{{- end }}

{{- define "syncopate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "syncopate.subject" -}}
kind: ServiceAccount
name: {{ .Values.serviceAccount.name | quote }}
namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* Flags that values of their own set. */}}
{{- define "syncopate.ownArgs" -}}
- {{ printf "--ownership=%v" .Values.ownership | quote }}
- {{ printf "--nats-url=%v" .Values.nats.url | quote }}
- {{ printf "--redis-addrs=%v" .Values.redis.addrs | quote }}
- --metrics-bind-address=:8443
{{- if not .Values.metrics.secure }}
- --metrics-secure=false
{{- end }}
{{- if .Values.metrics.certSecret }}
- --metrics-cert-dir=/run/metrics-cert
{{- end }}
- --health-probe-bind-address=:8081
- {{ printf "--zap-log-level=%v" .Values.logLevel | quote }}
{{- with .Values.nats.prefix }}
- {{ printf "--nats-prefix=%v" . | quote }}
{{- end }}
{{- with .Values.nats.takeOver }}
- {{ printf "--nats-take-over=%v" . | quote }}
{{- end }}
{{- if ne (int .Values.nats.streamReplicas) 1 }}
- {{ printf "--nats-replicas=%v" .Values.nats.streamReplicas | quote }}
{{- end }}
{{- with .Values.nats.storage }}
- {{ printf "--nats-storage=%v" . | quote }}
{{- end }}
{{- if .Values.nats.auth.credsKey }}
- {{ printf "--nats-creds=/run/nats-creds/%v" .Values.nats.auth.credsKey | quote }}
{{- end }}
{{- if and .Values.nats.auth.existingSecret (not .Values.nats.auth.credsKey) }}
- --nats-auth-dir=/run/nats-auth
{{- end }}
{{- if .Values.nats.tls.caSecret }}
- {{ printf "--nats-ca=/run/nats-ca/%v" .Values.nats.tls.caKey | quote }}
{{- end }}
{{- if .Values.nats.tls.clientSecret }}
- --nats-cert=/run/nats-client/tls.crt
- --nats-key=/run/nats-client/tls.key
{{- end }}
{{- with .Values.redis.masterName }}
- {{ printf "--redis-master=%v" . | quote }}
{{- end }}
{{- if .Values.redis.cluster }}
- --redis-cluster=true
{{- end }}
{{- if .Values.redis.auth.existingSecret }}
- --redis-auth-dir=/run/redis-auth
{{- end }}
{{- if .Values.redis.tls.enabled }}
- --redis-tls=true
{{- if .Values.redis.tls.caSecret }}
- {{ printf "--redis-ca=/run/redis-ca/%v" .Values.redis.tls.caKey | quote }}
{{- end }}
{{- if .Values.redis.tls.clientSecret }}
- --redis-cert=/run/redis-client/tls.crt
- --redis-key=/run/redis-client/tls.key
{{- end }}
{{- end }}
{{- if .Values.webhook.enabled }}
- --webhook-bind-address=:9443
{{- if ne .Values.webhook.certificates "operator" }}
- --webhook-cert-dir=/run/webhook-certs
{{- end }}
{{- end }}
{{- with .Values.traces.endpoint }}
- {{ printf "--otlp-endpoint=%v" . | quote }}
- {{ printf "--trace-percent=%v" $.Values.traces.percent | quote }}
{{- end }}
{{- if .Values.stepEvents }}
- --step-events=true
{{- end }}
{{- end }}

{{- define "syncopate.args" -}}
{{ include "syncopate.ownArgs" . }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name and Secret of each directory under /run, as JSON: the Deployment mounts them. A Secret with items may be missing. */}}
{{- define "syncopate.mounts" -}}
{{- $mounts := list -}}
{{- if .Values.nats.auth.credsKey -}}{{- $mounts = append $mounts (dict "name" "nats-creds" "secret" .Values.nats.auth.existingSecret) -}}{{- end -}}
{{- with .Values.nats.auth -}}
{{- if and .existingSecret (not .credsKey) -}}
{{- $mounts = append $mounts (dict "name" "nats-auth" "secret" .existingSecret "items" (list (dict "key" .userKey "path" "user") (dict "key" .passwordKey "path" "password"))) -}}
{{- end -}}
{{- end -}}
{{- with .Values.redis.auth -}}
{{- if .existingSecret -}}
{{- $items := list (dict "key" .usernameKey "path" "username") (dict "key" .passwordKey "path" "password") -}}
{{- $items = concat $items (list (dict "key" .sentinelUsernameKey "path" "sentinelUsername") (dict "key" .sentinelPasswordKey "path" "sentinelPassword")) -}}
{{- $mounts = append $mounts (dict "name" "redis-auth" "secret" .existingSecret "items" $items) -}}
{{- end -}}
{{- end -}}
{{- with .Values.nats.tls.caSecret -}}{{- $mounts = append $mounts (dict "name" "nats-ca" "secret" .) -}}{{- end -}}
{{- with .Values.nats.tls.clientSecret -}}{{- $mounts = append $mounts (dict "name" "nats-client" "secret" .) -}}{{- end -}}
{{- if .Values.redis.tls.enabled -}}
{{- with .Values.redis.tls.caSecret -}}{{- $mounts = append $mounts (dict "name" "redis-ca" "secret" .) -}}{{- end -}}
{{- with .Values.redis.tls.clientSecret -}}{{- $mounts = append $mounts (dict "name" "redis-client" "secret" .) -}}{{- end -}}
{{- end -}}
{{- if and .Values.webhook.enabled (ne .Values.webhook.certificates "operator") -}}
{{- $mounts = append $mounts (dict "name" "webhook-certs" "secret" (ternary "syncopate-webhook-tls" .Values.webhook.secretName (eq .Values.webhook.certificates "cert-manager"))) -}}
{{- end -}}
{{- with .Values.metrics.certSecret -}}{{- $mounts = append $mounts (dict "name" "metrics-cert" "secret" .) -}}{{- end -}}
{{- toJson $mounts -}}
{{- end }}
