{{/* Labels of every object: (dict "root" $ "component" "recommender" or none). */}}
{{- define "outrigger.labels" -}}
app.kubernetes.io/name: outrigger
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "outrigger.image" -}}
{{- $image := printf "%s:%s" .own.image.repository (coalesce .own.image.tag .root.Values.image.tag .root.Chart.AppVersion) -}}
{{- with .root.Values.image.registry -}}{{ . }}/{{- end -}}{{ $image }}
{{- end }}

{{/* The flag with all gates that are named, in the order of their names. */}}
{{- define "outrigger.gates" -}}
{{- $gates := list -}}
{{- range $name, $on := .Values.featureGates }}{{ $gates = append $gates (printf "%s=%t" $name $on) }}{{ end -}}
{{- if $gates }}--feature-gates={{ join "," $gates }}{{ end -}}
{{- end }}

{{/* Flags about SidecarSets; both components that have them must agree. */}}
{{- define "outrigger.sidecarset-flags" -}}
- --sidecarset-mode={{ .Values.sidecarSet.mode }}
{{- with .Values.sidecarSet.revisionNamespace }}
- --sidecarset-revision-namespace={{ . }}
{{- end }}
{{- end }}

{{/*
A Deployment, its service account and its disruption budget:
(dict "root" $ "component" … "name" … "port" … "own" its values "args" more flags "ports" more ports "mounts" … "volumes" …)
*/}}
{{- define "outrigger.daemon" -}}
{{- $root := .root -}}
{{- $own := .own -}}
{{- if $own.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "outrigger.labels" . | nindent 4 }}
  {{- with $own.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
---
{{- end }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "outrigger.labels" . | nindent 4 }}
spec:
  replicas: {{ $own.replicas }}
  selector:
    matchLabels:
      app: {{ .name }}
  template:
    metadata:
      labels:
        app: {{ .name }}
        {{- include "outrigger.labels" . | nindent 8 }}
        {{- with $own.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $own.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      # Checkpoints are flushed, and the webhook is drained, before the end.
      terminationGracePeriodSeconds: 45
      containers:
      - name: {{ trimPrefix "vpa-" .name }}
        image: {{ include "outrigger.image" . | quote }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args:
        - --address=:{{ .port }}
        - --log-format={{ $root.Values.logFormat }}
        {{- with include "outrigger.gates" $root }}
        - {{ . | quote }}
        {{- end }}
        {{- with .args }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- range $own.extraArgs }}
        - {{ . | quote }}
        {{- end }}
        env:
        - name: NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        {{- with $own.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - {name: prometheus, containerPort: {{ .port }}}
        {{- with .ports }}
        {{- . | nindent 8 }}
        {{- end }}
        livenessProbe:
          httpGet: {path: /livez, port: prometheus}
          initialDelaySeconds: 5
          periodSeconds: 10
          failureThreshold: 3
        readinessProbe:
          httpGet: {path: /readyz, port: prometheus}
          periodSeconds: 5
          failureThreshold: 3
        resources:
          {{- toYaml $own.resources | nindent 10 }}
        securityContext:
          {{- toYaml $root.Values.containerSecurityContext | nindent 10 }}
        {{- with .mounts }}
        volumeMounts:
        {{- . | nindent 8 }}
        {{- end }}
      {{- with .volumes }}
      volumes:
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $own.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      topologySpreadConstraints:
      {{- if kindIs "invalid" $own.topologySpreadConstraints }}
      {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
      - maxSkew: 1
        topologyKey: {{ . }}
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: {{ $.name }}}}
      {{- end }}
      {{- else }}
      {{- toYaml $own.topologySpreadConstraints | nindent 8 }}
      {{- end }}
      {{- with $own.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.tolerations }}
      tolerations:
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- if and $own.podDisruptionBudget.enabled (gt (int $own.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "outrigger.labels" . | nindent 4 }}
spec:
  minAvailable: {{ $own.podDisruptionBudget.minAvailable }}
  selector: {matchLabels: {app: {{ .name }}}}
{{- end }}
{{- end }}

{{/* Flags of a component of which one leads. The lease is VPA's. */}}
{{- define "outrigger.election-flags" -}}
{{- if gt (int .replicas) 1 -}}
- --leader-elect=true
- --leader-elect-resource-namespace=$(NAMESPACE)
{{- end }}
{{- end }}

{{/*
Rights of a component: (dict "root" $ "component" … "name" … "everywhere" rules "here" rules). `here` holds in the
namespace of the release alone.
*/}}
{{- define "outrigger.rights" -}}
{{- $root := .root -}}
{{- $labels := include "outrigger.labels" . -}}
{{- $subject := printf "{kind: ServiceAccount, name: %s, namespace: %s}" .name $root.Release.Namespace -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: outrigger-{{ .component }}
  labels:
    {{- $labels | nindent 4 }}
rules:
{{ .everywhere | trim }}
{{ include "outrigger.target-rules" $root }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: outrigger-{{ .component }}
  labels:
    {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: outrigger-{{ .component }}}
subjects: [{{ $subject }}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: outrigger-{{ .component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
rules:
{{ .here | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: outrigger-{{ .component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: outrigger-{{ .component }}}
subjects: [{{ $subject }}]
{{- end }}

{{/* From a targetRef to pods: well-known controllers are watched, of others the scale is asked for. */}}
{{- define "outrigger.target-rules" -}}
- {apiGroups: [apps], resources: [daemonsets, deployments, replicasets, statefulsets], verbs: [list, watch]}
- {apiGroups: [batch], resources: [cronjobs, jobs], verbs: [list, watch]}
- {apiGroups: [""], resources: [replicationcontrollers], verbs: [list, watch]}
- {apiGroups: ["*"], resources: ["*/scale"], verbs: [get]}
{{- end }}

{{/* The lease of a component of which one leads: (dict "own" … "lease" …). A create cannot be bound to a name. */}}
{{- define "outrigger.election-rules" -}}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [{{ . }}], verbs: [get, update]}
{{- end }}
