{{- define "dispatchq.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "dispatchq.selector" -}}
app.kubernetes.io/name: dispatchq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dispatchq.labels" -}}
{{ include "dispatchq.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "dispatchq.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Common settings of all containers. Argument: root, databaseSecret, databaseKey, maintenance (whether the container gets the maintenance login). */}}
{{- define "dispatchq.container" -}}
{{- $root := .root -}}
image: {{ include "dispatchq.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
env:
  - { name: DISPATCHQ_DATABASE__URL_FILE, value: /run/secrets/dispatchq/database-url }
  - { name: DISPATCHQ_REDIS__URL_FILE, value: /run/secrets/dispatchq/redis-url }
  - { name: DISPATCHQ_HTTP__BIND, value: "0.0.0.0:8080" }
  - { name: DISPATCHQ_HTTP__ADMIN_BIND, value: "0.0.0.0:9090" }
  - { name: DISPATCHQ_WORKER__ADMIN_BIND, value: "0.0.0.0:9090" }
  {{- if .maintenance }}
  - { name: DISPATCHQ_DATABASE__MAINTENANCE_URL_FILE, value: /run/secrets/dispatchq/maintenance-url }
  {{- end }}
  {{- if $root.Values.redis.rootCertificate.existingSecret }}
  - { name: DISPATCHQ_REDIS__ROOT_CERTIFICATE, value: /run/secrets/dispatchq/redis-ca.crt }
  {{- end }}
  {{- range $n, $file := $root.Values.secretFiles }}
  - { name: {{ $file.setting }}, value: /run/secrets/dispatchq/file-{{ $n }} }
  {{- end }}
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  - { name: config, mountPath: /etc/dispatchq, readOnly: true }
  - { name: secrets, mountPath: /run/secrets/dispatchq, readOnly: true }
{{- end }}

{{/* Common settings of all pods. The same argument. */}}
{{- define "dispatchq.pod" -}}
{{- $root := .root -}}
automountServiceAccountToken: false
# Kubernetes' variables for a Service named dispatchq have the same prefix as dispatchq's settings.
enableServiceLinks: false
{{- with $root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: { type: RuntimeDefault }
volumes:
  - name: config
    configMap: { name: {{ include "dispatchq.fullname" $root }} }
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
        - secret: { name: {{ .databaseSecret }}, items: [{ key: {{ .databaseKey }}, path: database-url }] }
        - secret: { name: {{ $root.Values.redis.existingSecret }}, items: [{ key: {{ $root.Values.redis.key }}, path: redis-url }] }
        {{- if .maintenance }}
        {{- with $root.Values.database.maintenance }}
        - secret: { name: {{ .existingSecret }}, items: [{ key: {{ .key }}, path: maintenance-url }] }
        {{- end }}
        {{- end }}
        {{- with $root.Values.database.rootCertificate }}
        {{- if .existingSecret }}
        - secret: { name: {{ .existingSecret }}, items: [{ key: {{ .key }}, path: database-ca.crt }] }
        {{- end }}
        {{- end }}
        {{- with $root.Values.redis.rootCertificate }}
        {{- if .existingSecret }}
        - secret: { name: {{ .existingSecret }}, items: [{ key: {{ .key }}, path: redis-ca.crt }] }
        {{- end }}
        {{- end }}
        {{- range $n, $file := $root.Values.secretFiles }}
        - secret: { name: {{ $file.existingSecret }}, items: [{ key: {{ $file.key }}, path: file-{{ $n }} }] }
        {{- end }}
{{- end }}

{{/* Nodes on which a pod may run. Argument: root, labels (of the pod), settings (nodeSelector, tolerations, affinity). */}}
{{- define "dispatchq.placement" -}}
{{- $labels := .labels -}}
{{- with .settings.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $spread := .root.Values.topologySpread }}
{{- if $spread.enabled }}
topologySpreadConstraints:
  {{- range $spread.keys }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $spread.whenUnsatisfiable }}
    labelSelector:
      matchLabels: {{- $labels | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A HorizontalPodAutoscaler. Argument: root, name, labels, settings. */}}
{{- define "dispatchq.hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels: {{- include "dispatchq.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ .name }} }
  minReplicas: {{ .settings.minReplicas }}
  maxReplicas: {{ .settings.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: { type: Utilization, averageUtilization: {{ .settings.targetCPUUtilizationPercentage }} }
{{- end }}

{{/* A PodDisruptionBudget. Argument: root, name, labels, settings. */}}
{{- define "dispatchq.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "dispatchq.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .settings.maxUnavailable }}
  # While Postgres or Redis is down, no process is ready. Nodes can still be drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- .labels | nindent 6 }}
{{- end }}

{{/* A ScaledObject with which KEDA queries dispatchq. Argument: root, name, labels, settings (keda), queues, concurrency. */}}
{{- define "dispatchq.scaledobject" -}}
{{- $admin := printf "http://%s-metrics.%s.svc:9090" (include "dispatchq.fullname" .root) .root.Release.Namespace -}}
{{- $asked := printf "queues=%s" (join "," .queues) -}}
{{- if .concurrency }}{{- $asked = printf "%s&concurrency=%v" $asked .concurrency }}{{ end -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .name }}
  labels: {{- include "dispatchq.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ .name }} }
  minReplicaCount: {{ .settings.minReplicas }}
  maxReplicaCount: {{ .settings.maxReplicas }}
  pollingInterval: {{ .settings.pollingSeconds }}
  # Without `fallback`, the number of replicas stays the same while dispatchq does not answer.
  triggers:
    - type: metrics-api
      # The value is the number of replicas, so the target per replica is 1.
      metricType: AverageValue
      metadata:
        url: {{ printf "%s/admin/scale?%s" $admin $asked | quote }}
        format: json
        valueLocation: replicas
        targetValue: "1"
{{- end }}
